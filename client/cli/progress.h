/*
 * progress.h: shows on one line of the terminal how far a long call is. The line is overwritten each time, and
 * erased before anything else is printed.
 */
#ifndef KOPS_CLI_PROGRESS_H
#define KOPS_CLI_PROGRESS_H

#include <stdbool.h>

/* Returns true if stderr is a terminal that can erase a line, unless progress_forbid() was called. */
bool progress_is_possible(void);
void progress_forbid(void);

/* Replaces the shown text, cut to the width of the terminal. Does nothing in the background. */
void progress_show(const char *text);

/* The same with a bar before the text: "[####....] 50 %, " and so on. share: 0 to 1. */
void progress_show_share(double share, const char *text);

/*
 * Shows a text in half a second, unless something is shown or erased before; for a call that does not return
 * meanwhile. The text must stay valid and fit into a line.
 */
void progress_announce(const char *text);

/* Erases the line and cancels an announced text. Async-signal-safe. */
void progress_erase(void);

#endif
