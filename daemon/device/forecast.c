#include "device/forecast.h"

/*
 * A device's thread spins around the planned end of a run, for a share of the plan and this much more on either
 * side. Otherwise it sleeps until the driver wakes it. A virtual machine can wake it 0.3 ms late, which should
 * not delay the end of a run.
 */
#define SPIN_AROUND_NS 300000u
#define SPIN_SHARE     8
/* How long before the planned end the device's thread wakes the loop: this time plus this share of the plan,
 * the same as it spins itself. A virtual machine may need most of that to wake the loop. */
#define CALL_NS    300000u
#define CALL_SHARE 16
/*
 * If the client spins, neither thread sleeps in runs of up to this length. A CPU that slept for some
 * milliseconds has lost the code of CUDA from its caches, and the next launch would take 10 µs longer. Longer
 * runs do not gain by spinning.
 */
#define WATCHED_NS 8000000u

static void expect_next(struct forecast *f, uint64_t now, uint64_t in_ns, bool watched)
{
	bool spins = watched && in_ns <= WATCHED_NS;

	f->next_ns = now + in_ns;
	f->spin_ns = spins ? WATCHED_NS : SPIN_AROUND_NS + in_ns / SPIN_SHARE;
	f->call_ns = spins ? WATCHED_NS : CALL_NS + in_ns / CALL_SHARE;
}

void forecast_started(struct forecast *f, uint64_t now, uint64_t plan_ns, bool is_known, bool watched)
{
	bool alone = f->out++ == 0;

	if (alone || f->due_ns < now)
		f->due_ns = now;
	f->due_ns += plan_ns;
	f->planned_ns += plan_ns;
	if (alone || now + plan_ns < f->next_ns) {
		expect_next(f, now, plan_ns, watched);
		f->next_is_known = is_known;
	}
}

/*
 * Runs in flight are assumed to have equal shares of the device. Runs that overlap end sooner than one after
 * the other, and more may come before all have ended. So nothing is due later than the planned time of all that
 * are in flight.
 */
void forecast_left(struct forecast *f, uint64_t now)
{
	if (f->due_ns > now + f->planned_ns)
		f->due_ns = now + f->planned_ns;
	if (f->out)
		expect_next(f, now, f->due_ns > now ? (f->due_ns - now) / f->out : 0, false);
	f->next_is_known = false;
}

uint64_t forecast_nap_ns(const struct forecast *f, uint64_t now)
{
	if (now + f->spin_ns < f->next_ns)
		return f->next_ns - f->spin_ns - now;
	return now < f->next_ns + f->spin_ns ? 0 : SLEEP_OUT_NS;
}

bool forecast_may_end_in(const struct forecast *f, uint64_t now, uint64_t ns)
{
	return !f->next_is_known || now + ns >= f->next_ns;
}

uint64_t forecast_call_until_ns(struct forecast *f, uint64_t now)
{
	if (f->called_for_ns == f->next_ns || now + f->call_ns < f->next_ns)
		return 0;
	f->called_for_ns = f->next_ns;
	return f->next_ns + f->spin_ns;
}
