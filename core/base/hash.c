#include "core/base/hash.h"

#include <string.h>
#include <xxhash.h>

enum zf_status zf_hash_begin(struct zf_hash *h, struct zf_err *e)
{
    h->state = XXH3_createState();
    if (!h->state) return zf_fail_memory(e, "a hash");
    XXH3_128bits_reset(h->state);
    return ZF_OK;
}

void zf_hash_add_part(struct zf_hash *h, const void *data, size_t size)
{
    if (size) XXH3_128bits_update(h->state, data, size);
}

void zf_hash_add(struct zf_hash *h, const void *data, size_t size)
{
    zf_hash_add_part(h, &size, sizeof size);
    zf_hash_add_part(h, data, size);
}

void zf_hash_add_text(struct zf_hash *h, const char *text)
{
    zf_hash_add(h, text, text ? strlen(text) + 1 : 0);
}

void zf_hash_add_number(struct zf_hash *h, uint64_t number)
{
    zf_hash_add(h, &number, sizeof number);
}

void zf_hash_end(struct zf_hash *h, unsigned char out[16])
{
    XXH128_canonical_t bytes;
    XXH128_canonicalFromHash(&bytes, XXH3_128bits_digest(h->state));
    if (out) memcpy(out, bytes.digest, sizeof bytes.digest);
    XXH3_freeState(h->state);
}
