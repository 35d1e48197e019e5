/* base.h: what every file of libkops may use: error sentences, times, ends of waits. */
#ifndef KOPS_CLIENT_BASE_H
#define KOPS_CLIENT_BASE_H

#include "libkops/base/state.h"

int64_t client_now_us(void);

/* Sets kops_error() and returns code. */
int client_fail(kops *k, int code, const char *format, ...) __attribute__((format(printf, 3, 4)));

/* Returns true if text may go into a message as a device's or kernel's name: at most 64 printable ASCII
 * characters. */
bool client_name_is_valid(const char *text);

/* Returns 0 if a buffer may be published under this name, else KOPS_E_INVALID. */
int client_name_of_buffer(kops *k, const char *name);

/* The handle's timeout, and when it is over for a call that begins now. */
int64_t client_timeout_us(const kops *k);
int64_t client_until_us(const kops *k);

/* Converts a timeout of a public call to us. */
int64_t client_us_of(int timeout_ms);

/* Ends a waiter; NULL is allowed. why may be NULL for success. */
void client_waiter_end(struct waiter *waiter, int status, const char *why, const Kops__V1__Reply *reply);

#endif
