package stepwell;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotEquals;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static org.junit.platform.engine.discovery.DiscoverySelectors.selectClass;

import java.io.BufferedReader;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.PrintStream;
import java.net.ConnectException;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.function.Consumer;
import org.junit.jupiter.api.Nested;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.condition.DisabledOnOs;
import org.junit.jupiter.api.condition.OS;
import org.junit.jupiter.api.extension.RegisterExtension;
import org.junit.jupiter.api.io.TempDir;
import org.junit.platform.testkit.engine.EngineTestKit;

@Stepwell({"--templates", StepwellTest.ORDER})
class StepwellTest {
    static final String ORDER = "../../examples/testing/order.json";
    private static final Map<String, ?> DECLINED = Map.of("error", Map.of("message", "declined"));

    @Test
    void paymentIsSettledAfterARetryAndSevenDays(Sandbox s) {
        s.stub("charge", DECLINED, Map.of("result", Map.of("receipt", 1)));
        String task = s.create("shop/order", Map.of("amount", 120));
        s.status(task, "waiting_for_retry");
        s.clock(Map.of("advance", "1h"));
        s.calls("charge", 2);
        assertEquals(Map.of("receipt", 1L), s.result(task, "charge"));
        s.clock(Map.of("auto", true));
        s.control("wait-idle", null);
        s.complete(task, "settle", "settled");
        s.status(task, "complete");
        assertEquals("settled", s.result(task, "settle"));
        assertEquals(List.of("charge", "return_period", "settle"), s.steps(task).stream().map(step -> step.get("name")).toList());
        assertEquals(2L, s.step(task, "charge").get("attempts"));
        assertEquals("the task is complete: nothing is left to do", s.why(task));
    }

    @Nested
    @Stepwell({"--templates", "../../examples/testing/leave.yaml"})
    class Leave {
        @Test
        void nobodyAnswers(Sandbox s) {
            String task = s.create("people/leave", Map.of("who", "anna"));
            s.clock(Map.of("auto", true)); // which does not jump to a deadline
            s.control("wait-idle", null);
            s.status(task, "steps_in_process");
            s.clock(Map.of("advance", "48h"));
            assertEquals("complete", s.step(task, "remind").get("current_state"));
            s.clock(Map.of("advance", "24h"));
            s.status(task, "complete");
            assertEquals(List.of("ask", "approve", "remind", "approve_late", "nobody_answered"), s.steps(task).stream().map(step -> step.get("name")).toList());
        }

        @Test
        void somebodyAnswers(Sandbox s) {
            String task = s.create("people/leave", Map.of("who", "anna"));
            s.clock(Map.of("advance", "71h"));
            s.complete(task, "approve_late", Map.of("decision_point_outcome", Map.of("type", "create_steps", "step_names", List.of("grant"))));
            s.status(task, "complete");
            assertEquals(List.of("ask", "approve", "remind", "approve_late", "grant"), s.steps(task).stream().map(step -> step.get("name")).toList());
        }
    }

    @Test
    void everyFaultOfEveryStep(Sandbox s) {
        s.stub("charge", Map.of("result", Map.of("receipt", 1)));
        s.stub("settle", Map.of("result", "settled"));
        AssertionError found = assertThrows(AssertionError.class, () -> s.explore("shop/order", Map.of("amount", 120), Map.of()));
        assertTrue(found.getMessage().contains("--only charge:nobody  stuck: "), found.getMessage());
        s.explore("shop/order", Map.of("amount", 120), Map.of("allow", Map.of("nobody", List.of("stuck"))));
    }

    @Test
    void failureSaysInOneLineWhatHappened(Sandbox s) {
        s.stub("charge", DECLINED);
        String task = s.create("shop/order", Map.of());
        Map<String, Consumer<Sandbox>> checks = Map.of(
                "must be a state of tasks, not \"completed\"; did you mean complete?", x -> x.status(task, "completed"),
                "outcomes[1] of step charge is not JSON: NaN", x -> x.stub("charge", DECLINED, Map.of("result", Double.NaN)),
                "the task is waiting_for_retry, not complete: step \"charge\" ", x -> x.status(task, "complete"),
                "1 call matches, 2 wanted: attempt 1 failed (declined)", x -> x.calls("charge", 2),
                "no template has a step \"chrge\"", x -> x.calls("chrge", 1),
                "step charge has no result: ", x -> x.result(task, "charge"),
                "the task has no step pay; it has charge, return_period, settle", x -> x.step(task, "pay"),
                "no template shop/odrer is registered; did you mean shop/order?", x -> x.create("shop/odrer", Map.of()),
                "no such path: /nowhere", x -> x.request("GET", "/nowhere", null));
        checks.forEach((want, check) -> {
            String said = assertThrows(AssertionError.class, () -> check.accept(s)).getMessage();
            assertTrue(said.contains(want) && !said.contains("\n"), said);
        });
    }

    @Test
    void sandboxTakesOptions(Service service, Sandbox other) {
        String url;
        try (Sandbox s = service.sandbox(Map.of("deterministic_ids", "seed"))) {
            url = s.url;
            assertNotEquals(other.url, url);
            assertTrue(((String) s.clock(Map.of("freeze", true)).get("now")).startsWith("2026-01-01T00:00:00"));
            String task = s.create("shop/order");
            assertEquals(task, service.sandbox(Map.of("deterministic_ids", "seed")).create("shop/order"));
            service.sandbox(Map.of("seed", s.request("GET", "/_stepwell/state", null))).status(task, "steps_in_process");
        }
        assertThrows(ConnectException.class, () -> get(url));
        assertEquals("no sandbox was made: seeds is unknown; want name, seed or deterministic_ids",
                assertThrows(AssertionError.class, () -> service.sandbox(Map.of("seeds", 1))).getMessage());
    }

    @Nested
    class NestedTest {
        @Test
        void nestedClassHasTheSameService(Sandbox s) {
            s.create("shop/order", Map.of());
        }
    }

    /** The suites below are run by the test that follows them. */
    static final List<String> SANDBOXES = new ArrayList<>();

    @Stepwell({"--templates", ORDER})
    static class FirstSuite {
        @Test
        void one(Sandbox s) {
            SANDBOXES.add(s.url);
        }

        @Test
        void two(Sandbox s) {
            SANDBOXES.add(s.url);
        }
    }

    static class SecondSuite {
        @RegisterExtension
        static StepwellExtension stepwell = new StepwellExtension("--templates", ORDER);

        @Test
        void three(Sandbox s) {
            assertEquals(0L, Json.object(Json.object(s.request("GET", "/v1/tasks", null)).get("pagination")).get("total_count"));
            SANDBOXES.add(s.url);
        }
    }

    @Stepwell({"--templates", ORDER})
    static class FailingSuite {
        @Test
        void one(Sandbox s) {
            s.stub("charge", Map.of("error", Map.of("message", "declined one")));
            s.status(s.create("shop/order"), "waiting_for_retry");
        }

        @Test
        void two(Sandbox s) {
            s.stub("charge", Map.of("error", Map.of("message", "declined two")));
            s.status(s.create("shop/order"), "complete");
        }
    }

    @Test
    void logIsShownWithTheTestThatFailsOnly() {
        PrintStream before = System.err;
        ByteArrayOutputStream said = new ByteArrayOutputStream();
        System.setErr(new PrintStream(said));
        try {
            EngineTestKit.engine("junit-jupiter").selectors(selectClass(FailingSuite.class)).execute();
        } finally {
            System.setErr(before);
        }
        assertTrue(said.toString().contains("declined two") && !said.toString().contains("declined one"), said.toString());
    }

    @Stepwell({"--templates", "nowhere.json"})
    static class BrokenSuite {
        @Test
        void four(Sandbox s) {
        }
    }

    @Test
    void sandboxesAndServicesEnd() {
        var events = EngineTestKit.engine("junit-jupiter")
                .selectors(selectClass(FirstSuite.class), selectClass(SecondSuite.class), selectClass(BrokenSuite.class))
                .execute().testEvents();
        events.assertStatistics(stats -> stats.succeeded(3).failed(1));
        String said = events.failed().stream().map(Object::toString).toList().toString();
        assertTrue(said.contains("stepwell --templates nowhere.json did not start: its output says why"), said);
        assertEquals(3, SANDBOXES.stream().distinct().count());
        SANDBOXES.forEach(url -> assertThrows(ConnectException.class, () -> get(url)));
    }

    private static int get(String url) throws IOException, InterruptedException {
        return HttpClient.newHttpClient().send(HttpRequest.newBuilder(URI.create(url + "/health/live")).build(),
                HttpResponse.BodyHandlers.discarding()).statusCode();
    }

    /** A runner of tests that is killed. */
    static class Killed {
        public static void main(String[] args) throws IOException {
            System.err.println(new Service(List.of()).url);
            System.in.read();
        }
    }

    @Test
    void serviceEndsWhenItsRunnerIsKilled() throws IOException, InterruptedException {
        Process runner = new ProcessBuilder(ProcessHandle.current().info().command().orElseThrow(), "-cp",
                System.getProperty("java.class.path"), Killed.class.getName()).redirectErrorStream(true).start();
        BufferedReader said = runner.inputReader();
        String url = said.readLine();
        assertEquals(200, get(url));
        runner.toHandle().destroyForcibly(); // SIGKILL
        assertNull(said.readLine());
        assertThrows(ConnectException.class, () -> {
            while (get(url) == 200) {
                Thread.onSpinWait();
            }
        });
    }

    @Test
    @DisabledOnOs(OS.WINDOWS)
    void programIsFoundWhereItIsGivenOnPathOrInACheckout(@TempDir Path temporary) throws IOException {
        Path dir = temporary.toRealPath();
        Path checkout = Files.createDirectories(dir.resolve("checkout"));
        String given = script(dir.resolve("a b/stepwell"), "");
        String onPath = script(dir.resolve("bin/stepwell"), "");
        script(dir.resolve("go/go"), "[ ! -e broken ] || exit 1; echo \"built by $* in $PWD\"");
        Map<String, String> env = new HashMap<>(Map.of("STEPWELL", "run  it", "PATH", dir + "/bin",
                "STEPWELL_SOURCE", checkout.toString()));
        assertEquals(List.of("run", "it"), Service.find(env, null));
        env.put("STEPWELL", given);
        assertEquals(List.of(given), Service.find(env, null));
        env.remove("STEPWELL");
        assertEquals(List.of(onPath), Service.find(env, null));
        env.put("PATH", dir.toString());
        assertEquals("there is no program stepwell, and no Go to build it in " + checkout, refused(env));
        env.put("PATH", dir + "/go");
        List<String> built = List.of("built by run ./packages/build in " + checkout);
        assertEquals(built, Service.find(env, null));
        env.remove("STEPWELL_SOURCE");
        assertEquals("there is no program stepwell: put it on PATH, set STEPWELL to it, or set STEPWELL_SOURCE to its checkout",
                refused(env));
        assertEquals(built, Service.find(env, checkout), "the checkout it was installed from");
        Files.createFile(checkout.resolve("broken"));
        String said = assertThrows(AssertionError.class, () -> Service.find(env, checkout)).getMessage();
        assertEquals("building the service in " + checkout + " failed: its output says why", said);
    }

    private static String refused(Map<String, String> env) {
        return assertThrows(AssertionError.class, () -> Service.find(env, null)).getMessage();
    }

    private static String script(Path file, String text) throws IOException {
        Files.createDirectories(file.getParent());
        Files.writeString(file, "#!/bin/sh\n" + text);
        assertTrue(file.toFile().setExecutable(true));
        return file.toString();
    }

    @Test
    void jsonIsReadAndWritten() {
        String text = "{\"a\":[1,-2.5,true,false,null,\"\\u0001 \\\"x\\\\\u00e4\"],\"b\":{},\"c\":[]}";
        Object value = Json.read(" " + text.replace(",", " ,\n") + " ");
        assertEquals(text, Json.write(value));
        assertEquals("/\b\f\n\r\t\u20ac", Json.read("\"\\/\\b\\f\\n\\r\\t\\u20ac\""));
        assertEquals(1e20, Json.read("100000000000000000000"));
        assertNotEquals(1, Json.read("1"));
        for (String bad : List.of("", "{", "[1", "[1 2]", "{\"a\"}", "\"a", "\"\\", "\"\\u12", "nul", "1 2", "{a:1}")) {
            assertThrows(IllegalArgumentException.class, () -> Json.read(bad), bad);
        }
        for (Object other : new Object[] {Double.NaN, new int[1], List.of(Thread.State.NEW)}) {
            assertThrows(IllegalArgumentException.class, () -> Json.write(other));
        }
    }
}
