#include "terminal.h"

/* clang-format off: term.h needs what curses.h declares */
#include <curses.h>
#include <term.h>
/* clang-format on */
#include <stdlib.h>
#include <unistd.h>

bool terminal_moves_cursor(void)
{
	const char *name = getenv("TERM");
	TERMINAL *before = cur_term;
	char capability[] = "cup";
	int found;

	if (!name || !*name)
		return false;
	if (setupterm(NULL, STDOUT_FILENO, &found) == ERR)
		return true; /* the screen will report what is wrong */
	bool moves = tigetstr(capability) != NULL;
	del_curterm(set_curterm(before));
	return moves;
}
