/* Tests that jobs which a device has claim their memory once it is short, whether they run or are paused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#include "dispatch/admit.h"
#include "unit/daemon/loop.h"
#include "unit/fake_host.h"

#define FILE_BYTES  (64 * FAKE_HOST_MIB)
#define REACH_BYTES (8 * FAKE_HOST_MIB)

struct fixture {
	uv_loop_t loop;
	struct engine engine;
	struct device device;
	struct buffer buffer; /* without pages */
	struct buffer_use use;
	struct job *job;
};

static int pin(void *host, uint64_t bytes, bool read_only)
{
	(void)host;
	(void)bytes;
	(void)read_only;
	return 0;
}

static const struct driver computes = {.pin = NULL}, registers = {.pin = pin};

static int setup(void **state)
{
	struct fixture *f = calloc(1, sizeof *f);
	int fd = memfd_create("kops-test", MFD_CLOEXEC);

	assert_true(f && fd >= 0);
	assert_int_equal(ftruncate(fd, FILE_BYTES), 0);
	fake_host_make();
	uv_loop_init(&f->loop);
	f->engine.loop = &f->loop;
	f->engine.n_devices = 1;
	f->engine.devices[0].device = &f->device;
	admit_init(&f->engine);
	f->buffer = (struct buffer){.engine = &f->engine,
	                            .of = &f->buffer,
	                            .state = BUFFER_READY,
	                            .refs = 1,
	                            .fd = -1,
	                            .memory.bytes = FILE_BYTES,
	                            .pages.fd = fd};
	f->use = (struct buffer_use){.buffer = &f->buffer, .reach_bytes = REACH_BYTES};
	f->job = calloc(1, sizeof *f->job);
	assert_non_null(f->job);
	f->job->engine = &f->engine;
	f->job->uses = (struct uses){.list = &f->use, .n = 1};
	*state = f;
	return 0;
}

static int teardown(void **state)
{
	struct fixture *f = *state;

	close_loop(&f->loop);
	close(f->buffer.pages.fd);
	free(f->job);
	free(f);
	return fake_host_remove();
}

/* While memory is ample, a job claims nothing. */
static void start(struct fixture *f, const struct driver *driver)
{
	char why[WHY_BYTES];
	bool pins;

	f->device.driver = driver;
	assert_true(engine_memory_is_ample(&f->engine));
	assert_int_equal(uses_start(&f->job->uses, &f->engine, driver->pin, &pins, why), 0);
	assert_int_equal(host_memory_room(), FAKE_HOST_ROOM);
}

static void memory_becomes_short(struct fixture *f)
{
	f->engine.accounts.bytes[ACCOUNT_MAPPED] = FAKE_HOST_ROOM;
	assert_false(engine_memory_is_ample(&f->engine));
}

static void end(struct fixture *f)
{
	uses_end(&f->job->uses, true);
	assert_int_equal(host_memory_room(), FAKE_HOST_ROOM);
}

static void a_running_job_claims_what_it_may_touch(void **state)
{
	struct fixture *f = *state;

	start(f, &computes);
	f->job->state = JOB_RUNNING;
	list_push_last(&f->engine.devices[0].out, &f->job->out);
	memory_becomes_short(f);
	assert_int_equal(host_memory_room(), FAKE_HOST_ROOM - REACH_BYTES);
	end(f);
}

/* It will run on, and then nobody asks whether there is memory for it. */
static void a_paused_job_claims_what_it_may_touch(void **state)
{
	struct fixture *f = *state;

	start(f, &computes);
	f->job->state = JOB_PAUSED;
	list_push_last(&f->engine.devices[0].paused, &f->job->paused);
	memory_becomes_short(f);
	assert_int_equal(host_memory_room(), FAKE_HOST_ROOM - REACH_BYTES);
	end(f);
}

/* Registering a buffer touches all of it. */
static void a_device_that_registers_buffers_may_touch_all(void **state)
{
	struct fixture *f = *state;

	start(f, &registers);
	f->job->state = JOB_RUNNING;
	list_push_last(&f->engine.devices[0].out, &f->job->out);
	memory_becomes_short(f);
	assert_int_equal(host_memory_room(), FAKE_HOST_ROOM - FILE_BYTES);
	end(f);
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
	const struct CMUnitTest tests[] = {
	    TEST(a_running_job_claims_what_it_may_touch),
	    TEST(a_paused_job_claims_what_it_may_touch),
	    TEST(a_device_that_registers_buffers_may_touch_all),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
