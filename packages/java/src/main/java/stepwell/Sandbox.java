package stepwell;

import java.io.IOException;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.stream.Collectors;
import org.junit.jupiter.api.extension.ExtensionContext;

/**
 * A service for one test, with tasks, stubs and a clock of its own, which is frozen. What is sent is made of maps,
 * lists, strings, numbers, booleans and null; what is returned, too. Integers are of type Long.
 */
public final class Sandbox implements ExtensionContext.Store.CloseableResource, AutoCloseable {
    private static final HttpClient CLIENT =
            HttpClient.newBuilder().version(HttpClient.Version.HTTP_1_1).proxy(HttpClient.Builder.NO_PROXY).build();
    /** For the application under test. */
    public final String url;
    private final String self;

    Sandbox(String sandboxes, Map<String, ?> options) {
        Map<String, Object> box = Json.object(send("POST", sandboxes, options));
        url = (String) box.get("orchestration_url");
        self = sandboxes + "/" + box.get("name");
        clock(Map.of("freeze", true));
    }

    /** Deletes the sandbox. JUnit does this after the test for its parameter. */
    @Override
    public void close() {
        send("DELETE", self, null);
    }

    /**
     * Sends a request, fails the test if the service refuses it, and returns the response: JSON as values, else text.
     * The body may be null.
     */
    public Object request(String method, String path, Object body) {
        return send(method, url + path, body);
    }

    /** Posts to the control API, under /_stepwell/, and fails the test if the response has a warning. */
    public Map<String, Object> control(String path, Map<String, ?> body) {
        Object reply = request("POST", "/_stepwell/" + path, body);
        Map<String, Object> object = reply == null ? Map.of() : Json.object(reply);
        if (object.containsKey("warning")) { // such as an unknown step
            throw new AssertionError(object.get("warning"));
        }
        return object;
    }

    /** Moves the clock: Map.of("advance", "1h"), or Map.of("auto", true) to jump to each timer. */
    public Map<String, Object> clock(Map<String, ?> change) {
        return control("clock", change);
    }

    /** Scripts the outcomes of a step's attempts; the last one repeats. */
    public void stub(String step, Map<?, ?>... outcomes) {
        stubThen("last", step, outcomes);
    }

    /** Is stub, but after the last outcome the step runs if then is "handler". */
    public void stubThen(String then, String step, Map<?, ?>... outcomes) {
        for (int i = 0; i < outcomes.length; i++) {
            try {
                Json.write(outcomes[i]);
            } catch (IllegalArgumentException e) {
                throw new AssertionError("outcomes[" + i + "] of step " + step + " is " + e.getMessage());
            }
        }
        control("stubs", Map.of("match", Map.of("step", step), "outcomes", List.of(outcomes), "then", then));
    }

    /** Creates a task of the template "namespace/name" without a context, and returns its id. */
    public String create(String template) {
        return create(template, Map.of());
    }

    /** Creates a task of the template "namespace/name", and returns its id. */
    public String create(String template, Map<String, ?> context) {
        String[] names = template.split("/", 2);
        Object task = request("POST", "/v1/tasks",
                Map.of("namespace", names[0], "name", names.length < 2 ? "" : names[1], "context", context));
        return (String) Json.object(task).get("task_uuid");
    }

    /** Runs a task with every fault of every step, and fails the test with the table if one does not end as it should. */
    public void explore(String template, Map<String, ?> context, Map<String, ?> options) {
        String[] names = template.split("/", 2);
        Map<String, Object> body = new HashMap<>(options);
        body.putAll(Map.of("namespace", names[0], "name", names.length < 2 ? "" : names[1], "context", context));
        Map<String, Object> found = control("explore", body);
        if (!found.get("findings").equals(0L)) {
            throw new AssertionError("\n" + found.get("text"));
        }
    }

    /** Waits until nothing runs, and returns the steps of a task. */
    public List<Map<String, Object>> steps(String task) {
        control("wait-idle", null);
        List<?> steps = (List<?>) request("GET", "/v1/tasks/" + task + "/workflow_steps", null);
        return steps.stream().map(Json::object).toList();
    }

    /** Waits until nothing runs, and returns a step of a task. */
    public Map<String, Object> step(String task, String name) {
        List<Map<String, Object>> steps = steps(task);
        return steps.stream().filter(s -> s.get("name").equals(name)).findFirst().orElseThrow(() -> new AssertionError(
                "the task has no step " + name + "; it has "
                        + steps.stream().map(s -> (String) s.get("name")).collect(Collectors.joining(", "))));
    }

    /** Completes a step as a person does. */
    public void complete(String task, String step, Object result) {
        request("PATCH", "/v1/tasks/" + task + "/workflow_steps/" + step(task, step).get("step_uuid"), Map.of(
                "action_type", "complete_manually", "completion_data", Collections.singletonMap("result", result),
                "reason", "test", "completed_by", "test"));
    }

    /** Waits until nothing runs, and checks the status of a task. */
    public void status(String task, String want) {
        control("wait-idle", null);
        control("verify", Map.of("task_uuid", task, "status", want));
    }

    /** Says in one line why a task is stuck. */
    public String why(String task) {
        return (String) Json.object(request("GET", "/v1/tasks/" + task + "/explain", null)).get("message");
    }

    /** Waits until nothing runs, and checks how often a step's handler or stub was called, in this sandbox. */
    public void calls(String step, int want) {
        control("wait-idle", null);
        control("verify", Map.of("match", Map.of("step", step), "count", Map.of("exactly", want)));
    }

    /** Waits until nothing runs, and returns the result of a step. It fails the test if the step has none. */
    public Object result(String task, String step) {
        Map<String, Object> found = step(task, step);
        if (!List.of("complete", "resolved_manually").contains(found.get("current_state"))) {
            throw new AssertionError("step " + step + " has no result: " + why(task));
        }
        return found.get("results") == null ? null : Json.object(found.get("results")).get("result");
    }

    private static Object send(String method, String url, Object body) {
        HttpRequest.BodyPublisher text =
                body == null ? HttpRequest.BodyPublishers.noBody() : HttpRequest.BodyPublishers.ofString(Json.write(body));
        HttpResponse<String> reply;
        try {
            reply = CLIENT.send(HttpRequest.newBuilder(URI.create(url)).header("Content-Type", "application/json")
                    .method(method, text).build(), HttpResponse.BodyHandlers.ofString());
        } catch (IOException | InterruptedException e) {
            throw new AssertionError(method + " " + url + ": " + e, e);
        }
        String said = reply.body();
        if (reply.statusCode() < 400) {
            String type = reply.headers().firstValue("Content-Type").orElse("").split(";")[0];
            return said.isEmpty() ? null : type.equals("application/json") ? Json.read(said) : said;
        }
        try {
            throw new AssertionError(Json.object(Json.object(Json.read(said)).get("error")).get("message"));
        } catch (IllegalArgumentException e) { // not from the service
            throw new AssertionError(method + " " + url + ": " + said);
        }
    }
}
