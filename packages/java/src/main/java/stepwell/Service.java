package stepwell;

import java.io.BufferedReader;
import java.io.File;
import java.io.IOException;
import java.io.InputStream;
import java.io.UncheckedIOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.regex.Pattern;
import org.junit.jupiter.api.extension.ExtensionContext;

/** A running Stepwell, which classes with the same flags share. It ends with their tests, or with this process, however that ends. */
public final class Service implements ExtensionContext.Store.CloseableResource {
    private static final String SERVE = "--fixture --quiet --listen 127.0.0.1:0 --worker-listen 127.0.0.1:0"
            + " --print-ready --exit-with-parent";
    private static final boolean WINDOWS = File.separatorChar == '\\';
    private static List<String> command; // null until it was found
    private final Process process;
    private final File log;
    private int returned; // characters of it
    /** For the application under test. */
    public final String url;

    Service(List<String> flags) {
        List<String> command = new ArrayList<>(program());
        String program = command.get(0);
        command.addAll(List.of(SERVE.split(" ")));
        command.addAll(flags);
        try {
            log = File.createTempFile("stepwell-", ".log");
            log.deleteOnExit();
            process = new ProcessBuilder(command).redirectError(log).start();
            String ready = new BufferedReader(process.inputReader(StandardCharsets.UTF_8)).readLine();
            if (ready == null) {
                System.err.print(logged());
                throw new AssertionError(("stepwell " + String.join(" ", flags)).trim() + " did not start: its output says why");
            }
            url = (String) Json.object(Json.read(ready)).get("orchestration_url");
        } catch (IOException e) {
            throw new AssertionError(program + " does not run: " + e.getMessage());
        }
    }

    /** Creates a sandbox, whose clock is frozen. Options are such as Map.of("deterministic_ids", "SEED"). */
    public Sandbox sandbox(Map<String, ?> options) {
        return new Sandbox(url + "/_stepwell/sandboxes", options);
    }

    /** Returns what Stepwell has logged since the last call. */
    synchronized String logged() throws IOException {
        String all = Files.readString(log.toPath());
        String news = all.substring(returned);
        returned = all.length();
        return news;
    }

    /** Stops the service. JUnit does this after all tests. */
    @Override
    public void close() throws IOException, InterruptedException {
        process.getOutputStream().close(); // its standard input, without which it ends
        process.waitFor();
    }

    /** Returns the command that starts Stepwell, which may have to be built first. */
    static synchronized List<String> program() {
        if (command == null) {
            command = find(System.getenv(), installedFrom());
        }
        return command;
    }

    /** Finds the command that starts Stepwell, as docs/testing.md says. */
    static List<String> find(Map<String, String> env, Path checkout) {
        String given = env.getOrDefault("STEPWELL", "");
        if (!given.isEmpty()) {
            return Files.exists(Path.of(given)) ? List.of(given) : List.of(given.trim().split("\\s+"));
        }
        Path found = which("stepwell", env);
        if (found != null) {
            return List.of(found.toString());
        }
        String told = env.getOrDefault("STEPWELL_SOURCE", "");
        Path source = told.isEmpty() ? checkout : Path.of(told);
        if (source == null) {
            throw new AssertionError(
                    "there is no program stepwell: put it on PATH, set STEPWELL to it, or set STEPWELL_SOURCE to its checkout");
        }
        try {
            return List.of(build(source.toRealPath(), env));
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        }
    }

    /** Builds the program of a checkout, which takes no time if nothing has changed. */
    private static String build(Path source, Map<String, String> env) throws IOException {
        Path go = which("go", env);
        if (go == null) {
            throw new AssertionError("there is no program stepwell, and no Go to build it in " + source);
        }
        ProcessBuilder build = new ProcessBuilder(go.toString(), "run", "./packages/build")
                .directory(source.toFile()).redirectError(ProcessBuilder.Redirect.INHERIT);
        build.environment().putAll(Map.of("GOFLAGS", "", "GOWORK", "off"));
        Process building = build.start();
        String program = new String(building.getInputStream().readAllBytes(), StandardCharsets.UTF_8).trim();
        if (building.onExit().join().exitValue() != 0) {
            throw new AssertionError("building the service in " + source + " failed: its output says why");
        }
        return program;
    }

    private static Path which(String name, Map<String, String> env) {
        for (String directory : env.getOrDefault("PATH", env.getOrDefault("Path", "")).split(Pattern.quote(File.pathSeparator))) {
            Path file = Path.of(directory, WINDOWS ? name + ".exe" : name);
            if (file.isAbsolute() && Files.isRegularFile(file) && Files.isExecutable(file)) {
                return file;
            }
        }
        return null;
    }

    /** Returns the checkout in which Maven has installed this package, or null. */
    private static Path installedFrom() {
        try (InputStream in = Service.class.getResourceAsStream("checkout")) {
            Path checkout = Path.of(new String(in.readAllBytes(), StandardCharsets.UTF_8).trim());
            return checkout.isAbsolute() && Files.exists(checkout.resolve("go.mod")) ? checkout : null;
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        }
    }
}
