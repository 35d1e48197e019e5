#include "progress.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/time.h>
#include <unistd.h>

#include "show.h"

#define ERASE           "\r\x1b[K" /* go to the start of the line and erase it */
#define COLUMNS_DEFAULT 80

#define ANNOUNCE_US 500000
#define BAR_COLUMNS 20

static bool is_forbidden;
static volatile sig_atomic_t is_shown;
static const char *volatile announced;

bool progress_is_possible(void)
{
	const char *name = getenv("TERM");

	return !is_forbidden && isatty(STDERR_FILENO) && name && *name && strcmp(name, "dumb") != 0;
}

void progress_forbid(void)
{
	is_forbidden = true;
}

/* Returns false in the background, where the terminal belongs to a shell's prompt or another program. */
static bool is_in_foreground(void)
{
	pid_t group = tcgetpgrp(STDERR_FILENO);

	return group < 0 || group == getpgrp(); /* below 0: stderr is no controlling terminal */
}

/* Leaves one column out: writing into the last one may move the cursor to the next line. */
static int columns(void)
{
	struct winsize size;
	bool is_known = ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 1;

	return (is_known ? size.ws_col : COLUMNS_DEFAULT) - 1;
}

/* Ignores failures of the terminal. */
static void put(const char *text)
{
	ssize_t n = write(STDERR_FILENO, text, strlen(text));

	(void)n;
}

/* Sets a timer that sends a signal. Blocking calls of libkops continue after it. */
static void set_timer(suseconds_t us)
{
	setitimer(ITIMER_REAL, &(struct itimerval){.it_value.tv_usec = us}, NULL);
}

static void show_announced(int signal_number)
{
	const char *text = announced;
	int saved = errno;

	(void)signal_number;
	if (text && is_in_foreground()) {
		is_shown = true;
		put(ERASE);
		put(text);
	}
	errno = saved;
}

void progress_announce(const char *text)
{
	struct sigaction action = {.sa_handler = show_announced, .sa_flags = SA_RESTART};

	announced = text;
	sigaction(SIGALRM, &action, NULL);
	set_timer(ANNOUNCE_US);
}

static void forget_announced(void)
{
	if (announced)
		set_timer(0);
	announced = NULL;
}

void progress_show(const char *text)
{
	struct show_line cut = show_cut(text, columns());
	char line[sizeof(cut.text) + sizeof(ERASE)];

	forget_announced();
	if (!is_in_foreground())
		return;
	snprintf(line, sizeof(line), ERASE "%s", cut.text);
	is_shown = true;
	put(line);
}

void progress_show_share(double share, const char *text)
{
	char bar[BAR_COLUMNS + 1], line[256];

	for (int i = 0; i < BAR_COLUMNS; i++)
		bar[i] = i < share * BAR_COLUMNS ? '#' : '.';
	bar[BAR_COLUMNS] = 0;
	snprintf(line, sizeof(line), "[%s] %.0f %%, %.200s", bar, 100 * share, text);
	progress_show(line);
}

void progress_erase(void)
{
	int saved = errno;

	forget_announced();
	if (is_shown && is_in_foreground())
		put(ERASE);
	is_shown = false;
	errno = saved;
}
