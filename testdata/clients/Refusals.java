import java.io.IOException;
import java.io.InputStream;
import java.net.HttpURLConnection;
import java.net.URL;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.Map;
import java.util.TreeMap;

/** Does what refusals.py does, with HttpURLConnection. */
public class Refusals {
    public static void main(String[] args) throws Exception {
        System.setProperty("sun.net.http.allowRestrictedHeaders", "true");
        int tries = Integer.parseInt(args[1]);
        for (String line : Files.readAllLines(Path.of(args[0]))) {
            String[] parts = line.split("\t");
            byte[] body = new byte[Integer.parseInt(parts[3])];
            Arrays.fill(body, (byte) ' ');
            Map<String, Integer> got = new TreeMap<>();
            for (int i = 0; i < tries; i++) {
                got.merge(answer(parts, body), 1, Integer::sum);
            }
            System.out.println(String.join("\t", "" + got.getOrDefault(parts[0], 0), "of", "" + tries, line, "" + got));
        }
    }

    private static String answer(String[] parts, byte[] body) {
        try {
            HttpURLConnection connection = (HttpURLConnection) new URL(parts[2]).openConnection();
            connection.setRequestMethod(parts[1]);
            connection.setReadTimeout(60_000);
            connection.setDoOutput(true);
            for (String header : Arrays.copyOfRange(parts, 4, parts.length)) {
                String[] named = header.split(": ", 2);
                connection.setRequestProperty(named[0], named[1]);
            }
            connection.getOutputStream().write(body);
            int status = connection.getResponseCode();
            try (InputStream text = connection.getErrorStream()) {
                if (text != null) {
                    text.readAllBytes();
                }
            }
            return "" + status;
        } catch (IOException e) {
            return e.toString();
        }
    }
}
