import java.util.function.LongUnaryOperator;

/** A class that is loaded many times: each time with another number in its name and in those of its methods. */
public class Unit000000 implements LongUnaryOperator {
    public long applyAsLong(long x) {
        LongUnaryOperator inner = y -> inner000000(y);
        return outer000000(10, inner, x);
    }

    static long outer000000(int depth, LongUnaryOperator leaf, long x) {
        return depth > 0 ? outer000000(depth - 1, leaf, x) + depth : leaf.applyAsLong(x);
    }

    static long inner000000(long start) {
        long x = start;
        for (int i = 0; i < 200; i++) {
            x = step000000(x, i);
        }
        return x;
    }

    static long step000000(long x, int i) {
        return x * 6364136223846793005L + (x >>> 33) + i;
    }
}
