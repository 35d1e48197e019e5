/* terminal.h: what the terminal of $TERM can do. */
#ifndef KOPS_TOP_TERMINAL_H
#define KOPS_TOP_TERMINAL_H

#include <stdbool.h>

/* False: it can only print one line after the other (TERM=dumb), or nothing is said about it. An unknown one
 * may. */
bool terminal_moves_cursor(void);

#endif
