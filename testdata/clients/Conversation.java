// Talks to all three APIs with clients that openapi-generator generated, each of which is compiled by its own pom.xml.
//
// Usage: Conversation ORCHESTRATION_URL WORKER_URL MOUNT_URL

import java.util.Map;
import java.util.UUID;

public class Conversation {
    static void want(String what, Object got, Object wanted) {
        if (!wanted.equals(got)) {
            throw new AssertionError(what + ": got " + got + "; want " + wanted);
        }
    }

    public static void main(String[] urls) throws Exception {
        var tasks = new orchestration.api.TasksApi(orchestration(urls[0]));
        var asked = new orchestration.model.TaskRequest().name("diamond").namespace("demo").context(Map.of("order_id", 7));
        var task = tasks.createTask(asked, "30s", null, null, null);
        want("createTask", task.getStatus().getValue(), "complete");
        UUID id = task.getTaskUuid();
        var moves = tasks.listTransitions(id, null, null).getTransitions();
        want("listTransitions", moves.get(moves.size() - 1).getToState().getValue(), "complete");

        var at = new worker.ApiClient();
        at.updateBaseUri(urls[1]);
        var templates = new worker.api.TemplatesApi(at).listTemplates(null, null, null, null).getTemplates();
        want("listTemplates of the worker", templates.isEmpty(), false);

        var mounted = new mount.ApiClient();
        mounted.updateBaseUri(urls[2]);
        var read = new mount.api.TasksApi(mounted).getTask(id, true, null, null, null, null, null);
        want("getTask of the mount", read.getStatus().getValue(), "complete");
    }

    static orchestration.ApiClient orchestration(String url) {
        var client = new orchestration.ApiClient();
        client.updateBaseUri(url);
        return client;
    }
}
