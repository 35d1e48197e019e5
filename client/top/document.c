#include "document.h"

#include <stdlib.h>

#include "entries.h"
#include "rows.h"

static void put_daemon(struct json *json, const struct snapshot *before, const struct snapshot *now)
{
	const kops_info *info = now->info;

	json_text(json, "daemon", info->daemon);
	json_us(json, "interval_us", now->taken_us - before->taken_us);
	json_count(json, "uptime_us", info->uptime_us);
	json_count(json, "buffers", info->buffers);
	json_count(json, "mapped_bytes", info->mapped_bytes);
	json_count(json, "pinned_bytes", info->pinned_bytes);
	json_count(json, "pool_bytes", info->pool_bytes);
}

static void put_devices(struct json *json, const struct snapshot *before, const struct snapshot *now)
{
	json_array(json, "devices");
	for (size_t i = 0; i < now->info->n_devices; i++) {
		struct device_rates rates = device_rates_of(before, now, i);
		json_object(json, NULL);
		rows_device_json(json, rates.device);
		json_real(json, "jobs_per_s", rates.jobs_per_s);
		json_real(json, "busy", rates.busy);
		json_close_object(json);
	}
	json_close_array(json);
}

static void put_entry(struct json *json, const struct entry *e)
{
	json_object(json, NULL);
	if (e->user)
		rows_user_json(json, e->user);
	else
		rows_session_json(json, e->session);
	json_real(json, "jobs_per_s", e->jobs_per_s);
	json_real(json, "device_share", e->device_share);
	json_close_object(json);
}

static void put_entries(struct json *json, const char *key, struct entry *entries, size_t n)
{
	json_array(json, key);
	for (size_t i = 0; i < n; i++)
		put_entry(json, &entries[i]);
	json_close_array(json);
	free(entries);
}

int document_print(const struct snapshot *before, const struct snapshot *now, enum top_sort sort)
{
	size_t n_users, n_sessions;
	struct entry *users = entries_of_users(before, now, sort, &n_users);
	struct entry *sessions = entries_of_sessions(before, now, sort, &n_sessions);
	bool is_whole = users && sessions;
	struct json json;

	json_begin_line(&json, stdout, command_top.name);
	json_bool(&json, "ok", is_whole);
	put_daemon(&json, before, now);
	put_devices(&json, before, now);
	put_entries(&json, "users", users, n_users);
	put_entries(&json, "sessions", sessions, n_sessions);
	json_end(&json);
	return is_whole ? 0 : KOPS_E_NOMEM;
}
