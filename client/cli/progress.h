/*
 * progress.h: one line on the terminal that says how far a long call is. It is written over again and again,
 * and erased before anything else is printed.
 */
#ifndef KOPS_CLI_PROGRESS_H
#define KOPS_CLI_PROGRESS_H

#include <stdbool.h>

/* Whether there is a terminal behind stderr that can erase a line. */
bool progress_is_possible(void);

/* Shows the text in place of what was shown, cut to the width of the terminal; nothing while in the background.
 */
void progress_show(const char *text);

/*
 * Shows a text that lives on, and fits into a line, half a second from now, unless something is shown or erased
 * before: for a call that does not return in between.
 */
void progress_announce(const char *text);

/* Nothing is shown any more, nor will be. May be called by signal handlers. */
void progress_erase(void);

#endif
