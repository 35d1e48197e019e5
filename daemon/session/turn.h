/*
 * turn.h: what the loop does in a session's turn: it sends replies that waited, goes on with a request that is
 * midway, takes runs from the ring or reads one datagram. Loop thread only.
 */
#ifndef KOPS_TURN_H
#define KOPS_TURN_H

#include <stdbool.h>

#include "share/turns.h"

/* For turns_init(). True: the session may have more to read. */
bool session_take_turn(struct turns_waiter *waiter);

#endif
