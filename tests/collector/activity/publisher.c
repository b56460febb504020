/* A library that publishes the thread context of its callers (OTEP 4947). */
#ifdef TLS_BYTES
__thread char large[TLS_BYTES];
#endif
__thread void *otel_thread_ctx_v1;

void publish(void *record)
{
	otel_thread_ctx_v1 = record;
}
