import java.io.IOException;
import java.io.InputStream;
import java.nio.charset.StandardCharsets;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.function.LongUnaryOperator;

/** Loads a class, calls it for a while and drops it, until it reads a line. Prints a class's number, and when it was first and last
 * in use, in ns of the monotonic clock. */
public class Churn {
    static final int COLLECTED_EVERY = 16;
    static final AtomicInteger number = new AtomicInteger();
    static volatile long sink;
    static volatile boolean ended;

    static final class Loader extends ClassLoader {
        LongUnaryOperator load(String template, String number) throws ReflectiveOperationException {
            byte[] code = template.replace("000000", number).getBytes(StandardCharsets.ISO_8859_1);
            Class<?> loaded = defineClass("Unit" + number, code, 0, code.length);
            return (LongUnaryOperator) loaded.getConstructor().newInstance();
        }
    }

    /** Compiled for the classes that were there: each new one makes it deoptimize. */
    static void use(LongUnaryOperator unit, long until) {
        while (System.nanoTime() < until) {
            sink = unit.applyAsLong(sink);
        }
    }

    static void work(String template) {
        try {
            while (!ended) {
                int each = number.incrementAndGet();
                long begin = System.nanoTime();
                // Short ones are only interpreted, long ones are compiled by both compilers.
                use(new Loader().load(template, String.format("%06d", each)), begin + 3_000_000L * (1 << each % 7));
                System.out.println(each + " " + begin + " " + System.nanoTime());
                if (each % COLLECTED_EVERY == 0) {
                    System.gc();
                }
            }
        } catch (ReflectiveOperationException error) {
            throw new AssertionError(error);
        }
    }

    public static void main(String[] arguments) throws IOException {
        String template;
        try (InputStream code = Churn.class.getResourceAsStream("Unit000000.class")) {
            template = new String(code.readAllBytes(), StandardCharsets.ISO_8859_1);
        }
        System.out.println("ready");
        for (int i = 0; i < 2; i++) {
            new Thread(() -> work(template)).start();
        }
        System.in.read();
        ended = true;
    }
}
