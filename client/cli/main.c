/* kops-client: matrix jobs from files and scripts, through kopsd. */
#include "program.h"
#include "verb/commands.h"

int main(int argc, char **argv)
{
	return program_main(commands_program(), argc, argv);
}
