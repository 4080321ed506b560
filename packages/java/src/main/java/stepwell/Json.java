package stepwell;

import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.stream.Collectors;

/** JSON texts as maps, lists, strings, longs, doubles, booleans and null: all that this package needs without a library. */
final class Json {
    private final String text;
    private int at;

    private Json(String text) {
        this.text = text;
    }

    /** Returns the value of a text, or throws IllegalArgumentException. */
    static Object read(String text) {
        Json json = new Json(text);
        Object value = json.value();
        if (json.peek() != 0) {
            throw json.invalid();
        }
        return value;
    }

    /** Returns a value as an object, or throws IllegalArgumentException. */
    static Map<String, Object> object(Object value) {
        if (!(value instanceof Map<?, ?> map)) {
            throw new IllegalArgumentException("not an object: " + value);
        }
        Map<String, Object> object = new LinkedHashMap<>();
        map.forEach((name, member) -> object.put((String) name, member));
        return object;
    }

    static String write(Object value) {
        if (value instanceof Map<?, ?> map) {
            return map.entrySet().stream().map(e -> quote(e.getKey().toString()) + ":" + write(e.getValue()))
                    .collect(Collectors.joining(",", "{", "}"));
        }
        if (value instanceof Iterable<?> list) {
            List<String> members = new ArrayList<>();
            list.forEach(member -> members.add(write(member)));
            return "[" + String.join(",", members) + "]";
        }
        if (value instanceof CharSequence) {
            return quote(value.toString());
        }
        if (value == null || value instanceof Boolean || value instanceof Number n && Double.isFinite(n.doubleValue())) {
            return String.valueOf(value);
        }
        throw new IllegalArgumentException("not JSON: " + value + " (" + value.getClass().getSimpleName() + ")");
    }

    private static String quote(String s) {
        StringBuilder quoted = new StringBuilder("\"");
        s.chars().forEach(c -> quoted.append(c == '"' || c == '\\' ? "\\" + (char) c
                : c < ' ' ? String.format("\\u%04x", c) : String.valueOf((char) c)));
        return quoted.append('"').toString();
    }

    /** Skips white space, and returns the next character, or 0 at the end. */
    private char peek() {
        while (at < text.length() && " \t\r\n".indexOf(text.charAt(at)) >= 0) {
            at++;
        }
        return at < text.length() ? text.charAt(at) : 0;
    }

    private boolean skip(char c) {
        boolean found = peek() == c;
        at += found ? 1 : 0;
        return found;
    }

    private void need(boolean found) {
        if (!found) {
            throw invalid();
        }
    }

    private IllegalArgumentException invalid() {
        return new IllegalArgumentException("not valid JSON at " + at + ": " + text);
    }

    private Object value() {
        if (skip('{')) {
            Map<String, Object> object = new LinkedHashMap<>();
            while (!skip('}')) {
                need(object.isEmpty() || skip(','));
                need(skip('"'));
                String name = string();
                need(skip(':'));
                object.put(name, value());
            }
            return object;
        }
        if (skip('[')) {
            List<Object> list = new ArrayList<>();
            while (!skip(']')) {
                need(list.isEmpty() || skip(','));
                list.add(value());
            }
            return list;
        }
        return skip('"') ? string() : literal();
    }

    private String string() {
        StringBuilder s = new StringBuilder();
        for (;;) {
            need(at < text.length());
            char c = text.charAt(at++);
            if (c == '"') {
                return s.toString();
            }
            if (c == '\\') {
                need(at < text.length());
                c = text.charAt(at++);
                int control = "bfnrt".indexOf(c);
                if (c == 'u') {
                    need(at + 4 <= text.length());
                    c = (char) Integer.parseInt(text.substring(at, at + 4), 16);
                    at += 4;
                } else if (control >= 0) {
                    c = "\b\f\n\r\t".charAt(control);
                }
            }
            s.append(c);
        }
    }

    private Object literal() {
        peek();
        int start = at;
        while (at < text.length() && ",]} \t\r\n".indexOf(text.charAt(at)) < 0) {
            at++;
        }
        String word = text.substring(start, at);
        return switch (word) {
            case "null" -> null;
            case "true" -> true;
            case "false" -> false;
            default -> {
                try {
                    yield word.matches("-?\\d{1,18}") ? (Object) Long.valueOf(word) : (Object) Double.valueOf(word);
                } catch (NumberFormatException e) {
                    throw invalid();
                }
            }
        };
    }
}
