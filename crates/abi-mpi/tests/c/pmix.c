/* A PMIx library for tests, with the part of pmix.h that ranks need. The rank is PMIX_RANK, the job has TEST_SIZE ranks, and the notes
   that they exchange are files in TEST_FOLDER. */
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct { char nspace[256]; uint32_t rank; } pmix_proc_t;
typedef struct { char *key, *value; char separator; } pmix_envar_t;
typedef struct {
    uint16_t type;
    union { bool flag; char *string; uint32_t uint32; pmix_envar_t envar; } data;
} pmix_value_t;
typedef struct { char key[512]; uint32_t flags; pmix_value_t value; } pmix_info_t;

enum { PMIX_BOOL = 1, PMIX_STRING = 3, PMIX_UINT32 = 14, PMIX_GLOBAL = 3, PMIX_ERR_NOT_FOUND = -46, PMIX_ERR_BAD_PARAM = -27 };
#define PMIX_RANK_UNDEF UINT32_MAX
#define PMIX_RANK_WILDCARD (UINT32_MAX - 1)

static uint32_t rank, size;
static char path[4096];

/* The file of a note, or of a rank's arrival at a fence. */
static const char *file(const char *kind, const char *name, unsigned number) {
    snprintf(path, sizeof path, "%s/%s-%s-%u", getenv("TEST_FOLDER"), kind, name, number);
    return path;
}

static int is_wish(const pmix_info_t *info, size_t count, const char *key) {
    return count == 1 && !strcmp(info->key, key) && info->value.type == PMIX_BOOL && info->value.data.flag;
}

int PMIx_Init(pmix_proc_t *own, pmix_info_t *info, size_t count) {
    (void) info;
    rank = atoi(getenv("PMIX_RANK"));
    size = atoi(getenv("TEST_SIZE"));
    strcpy(own->nspace, getenv("PMIX_NAMESPACE"));
    own->rank = rank;
    return count ? PMIX_ERR_BAD_PARAM : 0;
}

int PMIx_Finalize(const pmix_info_t *info, size_t count) {
    (void) info;
    fclose(fopen(file("left", "", rank), "w"));
    return count ? PMIX_ERR_BAD_PARAM : 0;
}

int PMIx_Abort(int status, const char *message, pmix_proc_t *procs, size_t count) {
    (void) procs;
    fprintf(stderr, "abort %d: %s\n", status, message);
    return count ? PMIX_ERR_BAD_PARAM : 0;
}

int PMIx_Put(uint8_t scope, const char *key, pmix_value_t *value) {
    FILE *to;
    if (scope != PMIX_GLOBAL || value->type != PMIX_STRING) return PMIX_ERR_BAD_PARAM;
    to = fopen(file("note", key, 0), "w");
    fputs(value->data.string, to);
    fclose(to);
    return 0;
}

int PMIx_Commit(void) { return 0; }

int PMIx_Fence(const pmix_proc_t *procs, size_t n, const pmix_info_t *info, size_t count) {
    static unsigned fences;
    char name[16];
    if (procs || n || !is_wish(info, count, "pmix.collect")) return PMIX_ERR_BAD_PARAM;
    snprintf(name, sizeof name, "%u", fences++);
    fclose(fopen(file("fence", name, rank), "w"));
    for (uint32_t other = 0; other < size; other++)
        while (access(file("fence", name, other), F_OK)) usleep(1000);
    return 0;
}

int PMIx_Get(const pmix_proc_t *of, const char *key, const pmix_info_t *info, size_t count, pmix_value_t **value) {
    char text[1024];
    FILE *from;
    if (strcmp(of->nspace, getenv("PMIX_NAMESPACE")) || !is_wish(info, count, "pmix.immediate")) return PMIX_ERR_BAD_PARAM;
    *value = calloc(1, sizeof **value);
    (*value)->type = PMIX_UINT32;
    (*value)->data.uint32 = size;
    if (of->rank == PMIX_RANK_WILDCARD && (!strcmp(key, "pmix.job.size") || !strcmp(key, "pmix.local.size"))) return 0;
    from = of->rank == PMIX_RANK_UNDEF ? fopen(file("note", key, 0), "r") : NULL;
    if (!from) {
        free(*value);
        return PMIX_ERR_NOT_FOUND;
    }
    (*value)->type = PMIX_STRING;
    (*value)->data.string = strdup(fgets(text, sizeof text, from) ? text : "");
    fclose(from);
    return 0;
}

const char *PMIx_Error_string(int status) { return status == PMIX_ERR_NOT_FOUND ? "NOT-FOUND" : "BAD-PARAM"; }
