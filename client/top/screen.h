/* screen.h: shows frames on a terminal with ncurses. */
#ifndef KOPS_TOP_SCREEN_H
#define KOPS_TOP_SCREEN_H

#include "cli.h"

/*
 * Runs until the user ends it, or --count frames were shown. cli->handle must be connected. Returns an exit
 * code.
 */
int screen_run(struct cli *cli);

#endif
