/* verb/run.c: Run: runs a prepared job, as it is or made again. */
#include "session/runs.h"
#include "session/verbs.h"

int verb_run(struct request *r)
{
	const Kops__V1__Run *run = r->msg->run;

	return runs_run(r, run->prepared, run->deadline_us);
}
