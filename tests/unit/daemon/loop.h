/* loop.h: closes a loop whose handles belong to what was tested. Include it after cmocka.h. */
#ifndef KOPS_TEST_LOOP_H
#define KOPS_TEST_LOOP_H

#include <uv.h>

static inline void close_handle(uv_handle_t *handle, void *arg)
{
	(void)arg;
	uv_close(handle, NULL);
}

static inline void close_loop(uv_loop_t *loop)
{
	uv_walk(loop, close_handle, NULL);
	uv_run(loop, UV_RUN_DEFAULT);
	assert_int_equal(uv_loop_close(loop), 0);
}

#endif
