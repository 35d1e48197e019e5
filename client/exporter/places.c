#include "places.h"

#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

static struct in6_addr address_of(const struct sockaddr *peer)
{
	struct in6_addr address = {.s6_addr = {[10] = 0xff, [11] = 0xff}};

	if (peer->sa_family == AF_INET) {
		memcpy(&address.s6_addr[12], &((const struct sockaddr_in *)peer)->sin_addr, 4);
	} else if (peer->sa_family == AF_INET6) {
		address = ((const struct sockaddr_in6 *)peer)->sin6_addr;
		if (!IN6_IS_ADDR_V4MAPPED(&address))
			memset(&address.s6_addr[8], 0, 8);
	}
	return address;
}

static void append(struct places *all, struct place *p)
{
	p->before = all->last;
	p->after = NULL;
	*(all->last ? &all->last->after : &all->first) = p;
	all->last = p;
}

static void take_out(struct places *all, struct place *p)
{
	*(p->before ? &p->before->after : &all->first) = p->after;
	*(p->after ? &p->after->before : &all->last) = p->before;
}

static unsigned count_alike(const struct places *all, const struct place *p)
{
	unsigned n = 0;

	for (const struct place *other = all->first; other; other = other->after)
		n += !other->is_ending && memcmp(&other->address, &p->address, sizeof(p->address)) == 0;
	return n;
}

/* Returns NULL if the requests of all wait for kopsd; those end by themselves. */
static struct place *find_victim(const struct places *all)
{
	struct place *victim = NULL;
	unsigned most = 0;

	for (struct place *p = all->first; p; p = p->after) {
		unsigned n = p->waits || p->is_ending ? 0 : count_alike(all, p);
		if (n > most) {
			most = n;
			victim = p;
		}
	}
	return victim;
}

static void make_room(struct places *all)
{
	struct place *victim = find_victim(all);

	if (!victim)
		return;
	victim->is_ending = true;
	all->n--;
	shutdown(victim->fd, SHUT_RDWR);
}

struct place *places_take(struct places *all, int fd, const struct sockaddr *peer)
{
	struct place *p = calloc(1, sizeof(*p));

	if (!p)
		return NULL;
	if (all->n >= PLACES)
		make_room(all);
	p->of = all;
	p->fd = fd;
	p->address = address_of(peer);
	append(all, p);
	all->n++;
	return p;
}

void places_answered(struct place *p)
{
	take_out(p->of, p);
	append(p->of, p);
}

void places_leave(struct place *p)
{
	if (!p)
		return;
	take_out(p->of, p);
	p->of->n -= !p->is_ending;
	free(p);
}
