/* A library that is loaded at run time and calls back. */
__attribute__((noinline)) static int inner(void (*function)(void))
{
	function();
	return 1;
}

int plugin(void (*function)(void))
{
	return inner(function) + 1;
}
