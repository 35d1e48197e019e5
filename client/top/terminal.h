/* terminal.h: what the terminal named by $TERM can do. */
#ifndef KOPS_TOP_TERMINAL_H
#define KOPS_TOP_TERMINAL_H

#include <stdbool.h>

/*
 * Returns false if the terminal can only print lines (TERM=dumb), or $TERM is unset. An unknown one counts as
 * able.
 */
bool terminal_moves_cursor(void);

#endif
