import java.lang.reflect.Method;
import java.util.Arrays;
import java.util.function.LongUnaryOperator;

/** Burns CPU in three functions, below calls of every kind, and says at its end how long it was in each. */
public class Known {
    static final int DEEP = 60;
    static final long[] spent = new long[3];
    static volatile long sink;

    static long burn(long start, int rounds) {
        long x = start;
        for (int i = 0; i < rounds; i++) {
            x = x * 6364136223846793005L + (x >>> 33) + i;
        }
        return x;
    }

    static long sixty(long x) {
        long before = System.nanoTime();
        x = burn(x, 60_000);
        spent[0] += System.nanoTime() - before;
        return x;
    }

    static long thirty(long x) {
        long before = System.nanoTime();
        x = burn(x, 30_000);
        spent[1] += System.nanoTime() - before;
        return x;
    }

    static long ten(long x) {
        long before = System.nanoTime();
        x = burn(x, 10_000);
        spent[2] += System.nanoTime() - before;
        return x;
    }

    static long recurse(int depth, LongUnaryOperator leaf, long x) {
        if (depth > 0) {
            return recurse(depth - 1, leaf, x) + depth;
        }
        return leaf.applyAsLong(x);
    }

    /** Called by native code. */
    public static long calledBack(long x) {
        try {
            throw new IllegalStateException("as programs do");
        } catch (IllegalStateException error) {
            return recurse(DEEP, Known::ten, recurse(DEEP, y -> thirty(y), x));
        }
    }

    static long sorted(long x) {
        Long[] two = {x, x + 1};
        Arrays.sort(two, (a, b) -> {
            sink = recurse(DEEP, Known::sixty, a);
            return Long.compare(a, b);
        });
        return two[0];
    }

    static void work(Method callback) {
        try {
            while (true) {
                sink = sorted(sink) + (Long) callback.invoke(null, sink);
            }
        } catch (ReflectiveOperationException error) {
            throw new AssertionError(error);
        }
    }

    public static void main(String[] arguments) throws Exception {
        Method callback = Known.class.getMethod("calledBack", long.class);
        Thread worker = arguments.length > 0 ? Virtual.start(() -> work(callback)) : new Thread(() -> work(callback));
        if (arguments.length == 0) {
            worker.setDaemon(true);
            worker.start();
        }
        System.out.println("ready");
        while (System.in.read() == '\n') {
            System.out.println(spent[0] + " " + spent[1] + " " + spent[2]);
        }
    }
}
