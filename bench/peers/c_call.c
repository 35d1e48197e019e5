/*
 * c_call.c: the product that with_python.py times from Python, which loads this file. It has its own
 * connection.
 */
#include <time.h>

#include "kops.h"

#define SIZE   64
#define MATRIX (SIZE * SIZE * sizeof(float))

int c_call_open(void);
int c_call_times(double *ret_us, int n);

static kops *k;
static kops_job *job;

static double now_us(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (double)now.tv_sec * 1e6 + (double)now.tv_nsec * 1e-3;
}

static kops_view whole(kops_buffer *buffer)
{
	return kops_matrix(buffer, 0, KOPS_F32, SIZE, SIZE, 0);
}

/* Returns 0 or a negative KOPS_E_*, as c_call_times() does. */
int c_call_open(void)
{
	kops_buffer *matrices[3]; /* each in its own buffer, as Python's arrays are */
	int rc = kops_open(&k, NULL, NULL, 0);

	for (unsigned i = 0; i < 3 && rc == 0; i++)
		rc = kops_alloc(k, MATRIX, KOPS_SHARED, NULL, &matrices[i]);
	if (rc == 0)
		rc = kops_job_new(k, NULL, &job);
	if (rc < 0)
		return rc;
	for (unsigned i = 0; i < SIZE * SIZE; i++) {
		((float *)kops_data(matrices[0]))[i] = (float)(i % 7) - 3;
		((float *)kops_data(matrices[1]))[i] = (float)(i % 5) - 2;
	}
	return kops_job_gemm(job, 1, whole(matrices[0]), whole(matrices[1]), 0, whole(matrices[2]),
	                     KOPS_PRECISION_F32, NULL);
}

/* Runs the same job n times; ret_us gets the time of each. */
int c_call_times(double *ret_us, int n)
{
	int rc = 0;

	for (int i = 0; i < n && rc == 0; i++) {
		double start = now_us();

		rc = kops_run(job);
		ret_us[i] = now_us() - start;
	}
	return rc;
}
