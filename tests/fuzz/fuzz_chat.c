/* Any template text and any messages: the first byte chooses a kind; up to the first 0xFF byte stands the template (where it is refused,
 * the kind is used by name); then messages, each a byte for the role, the content, and 0xFE. Contents stay what they were and where they
 * were; special tokens come from the template only. */
#include "core/data/chat_impl.h"
#include "core/tokenizer/tokenizer_impl.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { MESSAGES = 16 };

static const char small[] = "{\"added_tokens\":[{\"id\":1,\"content\":\"<|im_start|>\",\"special\":true},"
                            "{\"id\":2,\"content\":\"<|im_end|>\",\"special\":true},{\"id\":3,\"content\":\"<|eot_id|>\",\"special\":true},"
                            "{\"id\":4,\"content\":\"\\n\",\"special\":false},{\"id\":5,\"content\":\"<think>\",\"special\":false}],"
                            "\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0},\"merges\":[]}}";

static void check(const struct zf_parts *p, const uint8_t *data, size_t size)
{
    for (size_t i = 0; i < p->count; i++) {
        const struct zf_part *part = &p->list[i];
        if (part->id < 0 ? !part->size : part->size || part->content) abort();
        if ((part->specials && part->content) || part->id > 5) abort();
        if (!part->content || (part->text >= (const char *)data && part->text + part->size <= (const char *)data + size)) continue;
        if (part->size != 8 || memcmp(part->text, "narrator", 8)) abort();
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char *const roles[] = {"user", "assistant", "system", "tool", "narrator", ""};
    struct zf_err e = {0};
    struct zf_tokenizer *t;
    struct zf_chat *c;
    struct zf_arena a = {0};
    struct zf_chat_found found;
    struct zf_message messages[MESSAGES];
    struct zf_parts parts = {0};
    size_t count = 0;
    if (!size) return 0;
    const uint8_t *mark = memchr(data, 0xFF, size), *end = data + size, *at = mark ? mark + 1 : end;
    const char *text = (const char *)data + 1;
    size_t text_size = mark && mark > data ? (size_t)(mark - data) - 1 : mark ? 0 : size - 1;
    enum zf_chat_kind kind = (enum zf_chat_kind)(ZF_CHAT_CHATML + data[0] % ZF_CHAT_NONE);
    if (zf_tokenizer_parse(&t, small, sizeof small - 1, "small", &e) != ZF_OK) abort();
    enum zf_status s = zf_chat_recognise(&found, &a, text, text_size, "f", &e);
    if (s != ZF_OK && (s != ZF_USAGE || !e.message[0] || found.kind != ZF_CHAT_AUTO)) abort();
    if (s == ZF_OK && found.kind == ZF_CHAT_AUTO) abort();
    if (s != ZF_OK) found = (struct zf_chat_found){.kind = kind};
    if (zf_chat_new(&c, &found, t, &e) != ZF_OK || strchr(zf_chat_describe(c), '\n')) abort();
    for (; at < end && count < MESSAGES; count++) {
        const uint8_t *stop = memchr(at + 1, 0xFE, (size_t)(end - at - 1));
        if (!stop) stop = end;
        messages[count] = (struct zf_message){roles[*at % 6], (const char *)at + 1, (size_t)(stop - at - 1), *at & 0x40};
        at = stop < end ? stop + 1 : end;
    }
    s = zf_chat_render(c, messages, count, data[0] & 0x80, &parts, &e);
    if (s != ZF_OK && s != ZF_FORMAT) abort();
    check(&parts, data, size);
    zf_parts_free(&parts);
    zf_chat_close(c);
    zf_arena_free(&a);
    zf_tokenizer_close(t);
    return 0;
}
