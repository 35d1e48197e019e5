/*
 * fake_root.h: a folder that stands for /, with a test's own files. One file of a program includes it, after
 * cmocka.h.
 */
#ifndef KOPS_TEST_FAKE_ROOT_H
#define KOPS_TEST_FAKE_ROOT_H

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

static char root[32];

/* Writes a file, and makes its folders. */
static void put(const char *path, const char *text)
{
	char full[512];
	FILE *file;

	snprintf(full, sizeof full, "%s%s", root, path);
	for (char *slash = strchr(full + strlen(root) + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
		*slash = '\0';
		mkdir(full, 0755);
		*slash = '/';
	}
	file = fopen(full, "w");
	assert_non_null(file);
	fputs(text, file);
	fclose(file);
}

#endif
