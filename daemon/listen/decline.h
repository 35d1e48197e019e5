/* decline.h: clients of a kopsd that cannot start, in the queue of an inherited socket, are told why. */
#ifndef KOPS_DECLINE_H
#define KOPS_DECLINE_H

/*
 * Answers each of those that wait at a listening socket with this sentence and hangs up. They would learn
 * nothing else before their timeout. Does not wait. Nothing where fd is negative.
 */
void decline_waiting(int fd, const char *sentence);

#endif
