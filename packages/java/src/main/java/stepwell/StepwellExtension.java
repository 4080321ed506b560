package stepwell;

import java.io.IOException;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import org.junit.jupiter.api.extension.AfterTestExecutionCallback;
import org.junit.jupiter.api.extension.BeforeAllCallback;
import org.junit.jupiter.api.extension.ExtensionContext;
import org.junit.jupiter.api.extension.ParameterContext;
import org.junit.jupiter.api.extension.ParameterResolver;
import org.junit.platform.commons.support.AnnotationSupport;

/** The extension behind {@link Stepwell}. Register it in a static field to compute flags. */
public final class StepwellExtension implements BeforeAllCallback, AfterTestExecutionCallback, ParameterResolver {
    private static final ExtensionContext.Namespace NAMESPACE = ExtensionContext.Namespace.create(StepwellExtension.class);
    private final List<String> flags; // null for those of the annotation

    StepwellExtension() {
        flags = null;
    }

    /** @param flags flags of Stepwell, such as "--handler", "shop.*=" + url */
    public StepwellExtension(String... flags) {
        this.flags = List.of(flags);
    }

    /** Builds the program before the first test, whose time limit would count the build. */
    @Override
    public void beforeAll(ExtensionContext context) {
        try {
            Service.program();
        } catch (AssertionError e) {
            // The first test that needs the program meets it again.
        }
    }

    /** Shows the log of Stepwell with a test that fails. */
    @Override
    public void afterTestExecution(ExtensionContext context) throws IOException {
        Service service = context.getRoot().getStore(NAMESPACE).get(wanted(context), Service.class);
        String log = service == null ? "" : service.logged();
        System.err.print(context.getExecutionException().isPresent() ? log : "");
    }

    @Override
    public boolean supportsParameter(ParameterContext parameter, ExtensionContext context) {
        return List.of(Sandbox.class, Service.class).contains(parameter.getParameter().getType());
    }

    /** Returns the service, or the sandbox of a test, which ends with it. One that a class asks for before its tests is for all of them. */
    @Override
    public Object resolveParameter(ParameterContext parameter, ExtensionContext context) {
        Service service = context.getRoot().getStore(NAMESPACE).getOrComputeIfAbsent(wanted(context), Service::new, Service.class);
        return parameter.getParameter().getType() == Service.class ? service
                : context.getStore(NAMESPACE).getOrComputeIfAbsent("sandbox", key -> service.sandbox(Map.of()));
    }

    private List<String> wanted(ExtensionContext context) {
        return flags != null ? flags : annotated(context);
    }

    private static List<String> annotated(ExtensionContext context) {
        Optional<Stepwell> found = AnnotationSupport.findAnnotation(context.getElement(), Stepwell.class);
        return found.map(a -> Arrays.asList(a.value())).orElseGet(() -> annotated(context.getParent().orElseThrow()));
    }
}
