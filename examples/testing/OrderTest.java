import static java.util.Map.of;
import org.junit.jupiter.api.Test;
import stepwell.*;

@Stepwell
class OrderTest {
    @Test void declinedCardIsChargedAgainLater(Sandbox s) {
        s.stub("charge", of("error", of("message", "declined")));
        s.status(s.create("shop/order"), "waiting_for_retry");
    }

    @Test void paymentIsSettledAfterARetryAndSevenDays(Sandbox s) {
        s.stub("charge", of("error", of("message", "declined")), of("result", of("receipt", 1)));
        s.stub("settle", of("result", "settled"));
        String task = s.create("shop/order", of("amount", 120));
        s.clock(of("advance", "1h"));
        s.calls("charge", 2);
        s.clock(of("advance", "167h59m"));
        s.calls("settle", 0);
        s.clock(of("advance", "1m"));
        s.status(task, "complete");
    }
}
