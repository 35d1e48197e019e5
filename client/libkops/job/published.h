/* published.h: what a handle has published and attached, over restarts of the daemon. */
#ifndef KOPS_CLIENT_PUBLISHED_H
#define KOPS_CLIENT_PUBLISHED_H

#include "libkops/base/state.h"

/* Asks for the published buffer that b is attached to, as request b->request. */
int client_attach_send(kops_buffer *b);

/*
 * Handles the reply to that. It maps a SHARED buffer, over what was mapped before. Returns a phrase on a
 * protocol violation; *ret_status becomes KOPS_E_* if the buffer cannot be used here, with a sentence in
 * kops_error().
 */
const char *client_attach_take(kops_buffer *b, const Kops__V1__Attached *attached, int *fds, unsigned n_fds,
                               int *ret_status);

/* Fills a Publish for the buffer; its name and shape are those of `how`, which must stay. */
void client_publish_fill(const kops_buffer *b, const struct publishing *how, Kops__V1__Publish *ret);

/* Publishes b again on a new connection, unless its content is lost: then it is no longer published. */
int client_publish_again(kops_buffer *b);

/* Handles a reply to that, if it is one. */
bool client_publish_answered(kops *k, const Kops__V1__Reply *reply);

/* Forgets how b was published. */
void client_publish_forget(kops_buffer *b);

#endif
