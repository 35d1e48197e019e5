/* list.c: lists users, sessions and the latest jobs, collected from pages. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "libkops/base/base.h"
#include "libkops/job/receipt.h"
#include "libkops/session/await.h"
#include "printable.h"

/* ---- Items: callers see the first member; what it points to lies beside it ---- */

struct user {
	kops_user_info shown;
	kops_usage usage;
};

struct listed_session {
	kops_session_info shown;
	kops_usage usage;
	kops_running_job oldest;
	bool runs;
	char client[CLIENT_NAME_BYTES + 1];
	char device[CLIENT_NAME_BYTES + 1], op[CLIENT_NAME_BYTES + 1], kernel[CLIENT_NAME_BYTES + 1];
};

struct traced_job {
	kops_traced_job shown;
	char device[CLIENT_NAME_BYTES + 1], op[CLIENT_NAME_BYTES + 1], kernel[CLIENT_NAME_BYTES + 1];
};

struct published_buffer {
	kops_buffer_info shown;
	char name[BUFFER_NAME_MAX + 1], device[CLIENT_NAME_BYTES + 1];
};

struct kops_list {
	const struct kind *kind;
	size_t n, capacity;
	char *items;
	uint64_t next; /* the next page; 0: none */
	/* For jobs: see kops_list_jobs(). */
	uint64_t after;
	size_t max;
};

struct kind {
	Kops__V1__Request__BodyCase verb;
	Kops__V1__Reply__BodyCase answer;
	size_t item_bytes;
	/* Appends a page. KOPS_E_NOMEM. */
	int (*append)(kops_list *list, const Kops__V1__Reply *reply);
	/* Sets the pointers within an item, once no item moves any more. */
	void (*settle)(void *item);
};

/* Appends an item of zeros. NULL: out of memory. */
static void *add_item(kops_list *list)
{
	size_t bytes = list->kind->item_bytes;
	if (list->n == list->capacity) {
		size_t capacity = list->capacity ? 2 * list->capacity : 32;
		char *items = realloc(list->items, capacity * bytes);
		if (!items)
			return NULL;
		list->items = items;
		list->capacity = capacity;
	}
	return memset(list->items + list->n++ * bytes, 0, bytes);
}

static void copy_name(char out[CLIENT_NAME_BYTES + 1], const char *name)
{
	snprintf(out, CLIENT_NAME_BYTES + 1, "%s", name);
}

static void copy_usage(const Kops__V1__Usage *from, kops_usage *to)
{
	if (!from)
		return;
	*to = (kops_usage){.jobs_done = from->jobs_done,
	                   .jobs_failed = from->jobs_failed,
	                   .flops = from->flops,
	                   .bytes = from->bytes,
	                   .queue_us = from->queue_us,
	                   .total_us = from->total_us,
	                   .device_us = from->device_us,
	                   .p50_us = from->p50_us,
	                   .p99_us = from->p99_us};
}

/* ---- Users ---- */

static int append_users(kops_list *list, const Kops__V1__Reply *reply)
{
	const Kops__V1__Users *page = reply->users;
	list->next = page->next;
	for (size_t i = 0; i < page->n_users; i++) {
		const Kops__V1__User *from = page->users[i];
		struct user *to = add_item(list);
		if (!to)
			return KOPS_E_NOMEM;
		to->shown = (kops_user_info){.uid = from->uid,
		                             .sessions = from->sessions,
		                             .buffers = from->buffers,
		                             .mapped_bytes = from->mapped_bytes,
		                             .pinned_bytes = from->pinned_bytes,
		                             .resident_bytes = from->resident_bytes,
		                             .prepared_bytes = from->prepared_bytes,
		                             .queued = from->queued,
		                             .running = from->running,
		                             .backlog_us = from->backlog_us};
		copy_usage(from->usage, &to->usage);
	}
	return 0;
}

static void settle_user(void *item)
{
	struct user *user = item;
	user->shown.usage = &user->usage;
}

/* ---- Sessions ---- */

static void copy_running_job(const Kops__V1__RunningJob *from, struct listed_session *to)
{
	to->runs = true;
	copy_name(to->device, from->device);
	copy_name(to->op, from->op);
	copy_name(to->kernel, from->kernel);
	to->oldest = (kops_running_job){.n_ops = from->ops,
	                                .parts = from->parts,
	                                .parts_done = from->parts_done,
	                                .running_us = from->running_us,
	                                .estimate_us = from->estimate_us,
	                                .shape = client_op_shape(from->dtype, from->n_shape, from->shape)};
}

static int append_sessions(kops_list *list, const Kops__V1__Reply *reply)
{
	const Kops__V1__Sessions *page = reply->sessions;
	list->next = page->next;
	for (size_t i = 0; i < page->n_sessions; i++) {
		const Kops__V1__Session *from = page->sessions[i];
		struct listed_session *to = add_item(list);
		if (!to)
			return KOPS_E_NOMEM;
		to->shown = (kops_session_info){.session = from->session,
		                                .uid = from->uid,
		                                .pid = from->pid,
		                                .age_us = from->age_us,
		                                .buffers = from->buffers,
		                                .prepared = from->prepared,
		                                .queued = from->queued,
		                                .running = from->running,
		                                .mapped_bytes = from->mapped_bytes,
		                                .resident_bytes = from->resident_bytes,
		                                .own = from->own};
		copy_name(to->client, from->client);
		copy_usage(from->usage, &to->usage);
		if (from->oldest)
			copy_running_job(from->oldest, to);
	}
	return 0;
}

static void settle_session(void *item)
{
	struct listed_session *session = item;
	kops_running_job *oldest = &session->oldest;
	session->shown.client = session->client;
	session->shown.usage = &session->usage;
	session->shown.oldest = session->runs ? oldest : NULL;
	oldest->device = session->device;
	oldest->op = session->op;
	oldest->kernel = session->kernel;
}

/* ---- Jobs ---- */

static int append_jobs(kops_list *list, const Kops__V1__Reply *reply)
{
	const Kops__V1__TracedJobs *page = reply->traced_jobs;
	list->next = page->next;
	for (size_t i = 0; i < page->n_jobs; i++) {
		const Kops__V1__TracedJob *from = page->jobs[i];
		if (from->number <= list->after || list->n == list->max) {
			list->next = 0;
			return 0;
		}
		struct traced_job *to = add_item(list);
		if (!to)
			return KOPS_E_NOMEM;
		to->shown = (kops_traced_job){.number = from->number,
		                              .session = from->session,
		                              .uid = from->uid,
		                              .pid = from->pid,
		                              .status = from->status,
		                              .age_us = from->age_us,
		                              .n_ops = from->ops,
		                              .flops = from->flops,
		                              .bytes = from->bytes,
		                              .queue_us = from->queue_us,
		                              .upload_us = from->upload_us,
		                              .compute_us = from->compute_us,
		                              .download_us = from->download_us,
		                              .total_us = from->total_us,
		                              .prepared = from->prepared,
		                              .graph = from->graph,
		                              .ring = from->ring,
		                              .shape = client_op_shape(from->dtype, from->n_shape, from->shape),
		                              .ended_ns = from->ended_ns};
		copy_name(to->device, from->device);
		copy_name(to->op, from->op);
		copy_name(to->kernel, from->kernel);
	}
	return 0;
}

static void settle_job(void *item)
{
	struct traced_job *job = item;
	job->shown.device = job->device;
	job->shown.op = job->op;
	job->shown.kernel = job->kernel;
}

/* ---- Published buffers ---- */

static int append_buffers(kops_list *list, const Kops__V1__Reply *reply)
{
	const Kops__V1__PublishedBuffers *page = reply->published_buffers;
	list->next = page->next;
	for (size_t i = 0; i < page->n_buffers; i++) {
		const Kops__V1__PublishedBuffer *from = page->buffers[i];
		struct published_buffer *to = add_item(list);
		if (!to)
			return KOPS_E_NOMEM;
		to->shown =
		    (kops_buffer_info){.number = from->number,
		                       .uid = from->user,
		                       .bytes = from->bytes,
		                       .shape = client_op_shape(from->dtype, from->n_shape, from->shape),
		                       .access = (kops_access)from->access,
		                       .group = from->group,
		                       .keep = from->keep,
		                       .age_us = from->age_us,
		                       .attached = from->attached,
		                       .pid = from->pid};
		copy_name(to->device, from->device);
		snprintf(to->name, sizeof to->name, "%s", from->name);
	}
	return 0;
}

static void settle_buffer(void *item)
{
	struct published_buffer *buffer = item;
	buffer->shown.name = buffer->name;
	buffer->shown.device = buffer->device;
}

/* ---- Lists ---- */

static const struct kind users = {KOPS__V1__REQUEST__BODY_LIST_USERS, KOPS__V1__REPLY__BODY_USERS,
                                  sizeof(struct user), append_users, settle_user};
static const struct kind sessions = {KOPS__V1__REQUEST__BODY_LIST_SESSIONS, KOPS__V1__REPLY__BODY_SESSIONS,
                                     sizeof(struct listed_session), append_sessions, settle_session};
static const struct kind jobs = {KOPS__V1__REQUEST__BODY_TRACE, KOPS__V1__REPLY__BODY_TRACED_JOBS,
                                 sizeof(struct traced_job), append_jobs, settle_job};

static const struct kind buffers = {KOPS__V1__REQUEST__BODY_LIST_BUFFERS,
                                    KOPS__V1__REPLY__BODY_PUBLISHED_BUFFERS, sizeof(struct published_buffer),
                                    append_buffers, settle_buffer};

static int fetch_page(kops *k, int64_t until_us, kops_list *list)
{
	struct call call = {.verb = list->kind->verb, .before = list->next};
	uint64_t before = list->next;
	int status = client_ask(k, &call, until_us);
	if (status < 0)
		return status;
	if (call.waiter.reply->body_case != list->kind->answer)
		return client_fail(k, KOPS_E_PROTOCOL,
		                   "kopsd answered a request for a list with another kind of reply");
	status = list->kind->append(list, call.waiter.reply);
	if (status < 0)
		return client_fail(k, status, "out of memory for a list of %zu items", list->n + 1);
	if (list->next && before && list->next >= before)
		return client_fail(k, KOPS_E_PROTOCOL, "kopsd's pages of a list do not end");
	return 0;
}

static int fetch(kops *k, kops_list *list)
{
	int64_t until_us = client_until_us(k);
	do {
		int status = fetch_page(k, until_us, list);
		if (status < 0)
			return status;
	} while (list->next);
	for (size_t i = 0; i < list->n; i++)
		list->kind->settle(list->items + i * list->kind->item_bytes);
	return 0;
}

static int list_new(kops *k, const struct kind *kind, uint64_t after, size_t max, kops_list **ret_list)
{
	kops_list *list = calloc(1, sizeof *list);
	if (!list)
		return client_fail(k, KOPS_E_NOMEM, "out of memory for a list");
	list->kind = kind;
	list->after = after;
	list->max = max ? max : SIZE_MAX;
	int status = fetch(k, list);
	if (status < 0)
		kops_list_free(list);
	else
		*ret_list = list;
	return status;
}

int kops_list_users(kops *k, kops_list **ret_list)
{
	return list_new(k, &users, 0, 0, ret_list);
}

int kops_list_sessions(kops *k, kops_list **ret_list)
{
	return list_new(k, &sessions, 0, 0, ret_list);
}

int kops_list_jobs(kops *k, uint64_t after, size_t max, kops_list **ret_list)
{
	return list_new(k, &jobs, after, max, ret_list);
}

int kops_list_buffers(kops *k, kops_list **ret_list)
{
	return list_new(k, &buffers, 0, 0, ret_list);
}

void kops_list_free(kops_list *list)
{
	if (!list)
		return;
	free(list->items);
	free(list);
}

size_t kops_list_count(const kops_list *list)
{
	return list->n;
}

static const void *item_at(const kops_list *list, const struct kind *kind, size_t i)
{
	return list->kind == kind && i < list->n ? list->items + i * kind->item_bytes : NULL;
}

const kops_user_info *kops_list_user(const kops_list *list, size_t i)
{
	return item_at(list, &users, i);
}

const kops_session_info *kops_list_session(const kops_list *list, size_t i)
{
	return item_at(list, &sessions, i);
}

const kops_traced_job *kops_list_job(const kops_list *list, size_t i)
{
	return item_at(list, &jobs, i);
}

const kops_buffer_info *kops_list_buffer(const kops_list *list, size_t i)
{
	return item_at(list, &buffers, i);
}
