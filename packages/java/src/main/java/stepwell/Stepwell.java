package stepwell;

import java.lang.annotation.ElementType;
import java.lang.annotation.Inherited;
import java.lang.annotation.Retention;
import java.lang.annotation.RetentionPolicy;
import java.lang.annotation.Target;
import org.junit.jupiter.api.extension.ExtendWith;

/**
 * Runs the tests of a class with a real Stepwell, and gives those with a parameter {@link Sandbox} one each. Classes
 * with the same flags share a {@link Service}, which is a parameter, too, and makes sandboxes with options. Where flags
 * are known at run time only, register a {@link StepwellExtension}.
 */
@Target(ElementType.TYPE)
@Retention(RetentionPolicy.RUNTIME)
@Inherited
@ExtendWith(StepwellExtension.class)
public @interface Stepwell {
    /** Flags of Stepwell, such as "--templates", FILE. */
    String[] value() default {};
}
