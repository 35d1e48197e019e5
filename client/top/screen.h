/* screen.h: frames on a terminal, by ncurses. */
#ifndef KOPS_TOP_SCREEN_H
#define KOPS_TOP_SCREEN_H

#include "cli.h"

/* Until its user ends it, or --count frames were shown. An exit code. cli->handle is connected. */
int screen_run(struct cli *cli);

#endif
