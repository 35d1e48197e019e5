#include "progress.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "show.h"

#define ERASE           "\r\x1b[K" /* to the line's start, and all from there on */
#define COLUMNS_DEFAULT 80

static volatile sig_atomic_t is_shown;

bool progress_is_possible(void)
{
	const char *name = getenv("TERM");

	return isatty(STDERR_FILENO) && name && *name && strcmp(name, "dumb") != 0;
}

/* Less one: writing into the last column may move the cursor to the next line. */
static int columns(void)
{
	struct winsize size;
	bool is_known = ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 1;

	return (is_known ? size.ws_col : COLUMNS_DEFAULT) - 1;
}

/* A terminal that takes nothing is no reason to fail. */
static void put(const char *text)
{
	ssize_t n = write(STDERR_FILENO, text, strlen(text));

	(void)n;
}

void progress_show(const char *text)
{
	struct show_line cut = show_cut(text, columns());
	char line[sizeof(cut.text) + sizeof(ERASE)];

	snprintf(line, sizeof(line), ERASE "%s", cut.text);
	is_shown = true;
	put(line);
}

void progress_erase(void)
{
	int saved = errno;

	if (is_shown)
		put(ERASE);
	is_shown = false;
	errno = saved;
}
