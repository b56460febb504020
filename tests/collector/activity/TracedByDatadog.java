/** Requests as Datadog's agent for Java traces them; prints the trace ID, start and end of each. */
public class TracedByDatadog {
	static volatile double sink;

	public static void request() throws Exception {
		long start = System.nanoTime();
		for (double x = 0; System.nanoTime() < start + 100_000_000; sink = x)
			for (int i = 0; i < 1000; i++)
				x += Math.sqrt(i + x);
		Object trace = Class.forName("datadog.trace.api.CorrelationIdentifier").getMethod("getTraceId").invoke(null);
		System.out.println(trace + " " + start + " " + System.nanoTime());
	}

	public static void main(String[] arguments) throws Exception {
		request();
		System.in.read();
		for (int i = 0; i < 60; i++)
			request();
	}
}
