/* base.c: what every file of libkops may use: error sentences, times, ends of waits. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "decimal.h"
#include "libkops/base/base.h"
#include "printable.h"
#include "status.h"

int64_t client_now_us(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t)t.tv_sec * 1000000 + t.tv_nsec / 1000;
}

int client_fail(kops *k, int code, const char *format, ...)
{
	char text[CLIENT_WHY_BYTES]; /* an argument may be k->error itself */
	va_list args;
	va_start(args, format);
	decimal_print(text, sizeof text, format, args);
	va_end(args);
	memcpy(k->error, text, sizeof text);
	return code;
}

bool client_name_is_valid(const char *text)
{
	size_t n = strnlen(text, CLIENT_NAME_BYTES + 1);
	for (size_t i = 0; i < n; i++)
		if (text[i] < 0x20 || text[i] > 0x7e)
			return false;
	return n <= CLIENT_NAME_BYTES;
}

int client_name_of_buffer(kops *k, const char *name)
{
	if (name && buffer_name_is_valid(name))
		return 0;
	return client_fail(k, KOPS_E_INVALID, "invalid name of a buffer; a name has " BUFFER_NAME_RULES);
}

int64_t client_timeout_us(const kops *k)
{
	return (int64_t)k->timeout_ms * 1000;
}

int64_t client_until_us(const kops *k)
{
	return client_now_us() + client_timeout_us(k);
}

int64_t client_us_of(int timeout_ms)
{
	return timeout_ms < 0 ? CLIENT_NEVER : (int64_t)timeout_ms * 1000;
}

void client_waiter_end(struct waiter *waiter, int status, const char *why, const Kops__V1__Reply *reply)
{
	if (!waiter || waiter->done)
		return;
	waiter->done = true;
	waiter->status = status;
	waiter->reply = reply;
	if (status < 0)
		snprintf(waiter->why, sizeof waiter->why, "%s", why && why[0] ? why : kops_strerror(status));
}

const char *kops_error(const kops *k)
{
	return k->error;
}

const char *kops_strerror(int code)
{
	return status_text(code);
}
