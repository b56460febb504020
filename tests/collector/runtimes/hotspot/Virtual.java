/** Virtual threads, since JDK 21. */
final class Virtual {
    private Virtual() {}

    static Thread start(Runnable work) throws Exception {
        return (Thread) Thread.class.getMethod("startVirtualThread", Runnable.class).invoke(null, work);
    }
}
