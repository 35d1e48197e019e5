/* kops-bench: measures kopsd from a client's side. */
#include "program.h"
#include "verbs.h"

int main(int argc, char **argv)
{
	return program_main(bench_program(), argc, argv);
}
