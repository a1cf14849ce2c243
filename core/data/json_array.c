/* json: the elements of a file's one array. Only strings and nesting are looked at; what an element says is its parser's matter.
 *
 * After a comma too few or too many the next element is still found, so that skip_bad can go on. Pure but for the reader. */
#include "core/data/reader_impl.h"

#include "core/base/json.h"

/* Bytes from the scan on to the element's end; false: it is not there. A scalar ends before what cannot belong to it. */
static bool scan_element(struct zf_json_scan *j, const char *text, size_t size, size_t *scan)
{
    size_t i = *scan;
    bool ended = false;
    for (; i < size && !ended; i++) {
        char c = text[i];
        if (j->string) {
            if (j->escape)
                j->escape = false;
            else if (c == '\\')
                j->escape = true;
            else if (c == '"') {
                j->string = false;
                ended = !j->depth;
            }
            continue;
        }
        bool separator = zf_reader_white(c) || c == ',' || c == ']' || c == '[' || c == '{' || c == '"';
        if (!j->depth && j->begun && separator) break;
        j->begun = true;
        if (c == '"') j->string = true;
        if (c == '{' || c == '[') j->depth++;
        if ((c == '}' || c == ']') && j->depth) ended = !--j->depth;
    }
    *scan = i;
    return ended || i < size;
}

static enum zf_found bad(struct zf_reader *r, struct zf_find *f, size_t next, bool done, enum zf_found found)
{
    f->next = next;
    r->done = done;
    return found;
}

static enum zf_found no_array(struct zf_reader *r, struct zf_find *f, struct zf_err *e)
{
    size_t size;
    const char *text = zf_reader_front(r, &size), *guess = zf_json_guess(text, 1); /* a pointer was told by the file's head */
    if (*guess) return bad(r, f, 0, true, zf_reader_bad(r, 0, e, "this is no data%s", guess));
    if (*text != '{')
        return bad(r, f, 0, true, zf_reader_bad(r, 0, e, "no `[` here; format json expects one array of records: [{...}, ...]"));
    return bad(
        r, f, 0, true,
        zf_reader_bad(r, 0, e,
                      "the file begins with an object; format json expects one array of records: [{...}, ...]. With an object a line "
                      "set format = jsonl; an array under a name can be taken out (jq .NAME)"));
}

static enum zf_found file_ended(struct zf_reader *r, struct zf_find *f, struct zf_err *e)
{
    if (r->json.state == ZF_JSON_START || r->json.state == ZF_JSON_ENDED) return ZF_FOUND_END;
    return bad(r, f, 0, true, zf_reader_bad(r, 0, e, "the file ends inside its array; expected `,` or `]`: is it complete?"));
}

static enum zf_found gap(struct zf_reader *r, struct zf_find *f, size_t next, int state)
{
    r->json.state = state;
    r->any = true;
    f->next = next;
    return ZF_FOUND_GAP;
}

/* Behind an element. */
static enum zf_found after(struct zf_reader *r, struct zf_find *f, const char *text, struct zf_err *e)
{
    if (*text == ',') return gap(r, f, 1, ZF_JSON_NEXT);
    if (*text == ']') return gap(r, f, 1, ZF_JSON_ENDED);
    r->json.state = ZF_JSON_NEXT;
    if (*text != '}' && *text != ':') return bad(r, f, 0, false, zf_reader_bad(r, 0, e, "expected `,` or `]` here: is a comma missing?"));
    r->json.state = ZF_JSON_AFTER;
    return bad(r, f, 1, false, zf_reader_bad(r, 0, e, "expected `,` or `]`, found `%c`: is a `{` missing before it?", *text));
}

static enum zf_found element(struct zf_reader *r, struct zf_find *f, struct zf_err *e)
{
    size_t size;
    const char *text = zf_reader_front(r, &size);
    struct zf_json_scan j = r->json;
    bool ended = scan_element(&j, text, size, &r->scan);
    r->json = j;
    if (!ended && !r->eof) return ZF_FOUND_MORE;
    if (!ended && (j.depth || j.string)) {
        return bad(
            r, f, size, true,
            zf_reader_bad(r, 0, e, "the file ends inside the record that begins here; is it complete, or a `\"`, `}` or `]` missing?"));
    }
    r->json = (struct zf_json_scan){.state = ZF_JSON_AFTER};
    f->size = f->next = r->scan;
    return ZF_FOUND_RECORD;
}

enum zf_found zf_scan_json(struct zf_reader *r, struct zf_find *f, struct zf_err *e)
{
    size_t size, white = 0;
    const char *text = zf_reader_front(r, &size);
    if (r->json.state == ZF_JSON_ELEMENT) return element(r, f, e);
    while (white < size && zf_reader_white(text[white])) white++;
    f->next = white;
    if (white) return ZF_FOUND_GAP;
    if (!size) return r->eof ? file_ended(r, f, e) : ZF_FOUND_MORE;
    switch (r->json.state) {
    case ZF_JSON_START: return *text == '[' ? gap(r, f, 1, ZF_JSON_FIRST) : no_array(r, f, e);
    case ZF_JSON_AFTER: return after(r, f, text, e);
    case ZF_JSON_ENDED:
        return bad(r, f, 0, true, zf_reader_bad(r, 0, e, "text follows the array's end; a file has one array: [{...}, ...]"));
    default: break;
    }
    if (*text == ',') {
        r->json.state = ZF_JSON_NEXT;
        return bad(r, f, 1, false, zf_reader_bad(r, 0, e, "expected a record, found `,`: a comma too many"));
    }
    if (*text == ']' && r->json.state == ZF_JSON_FIRST) return gap(r, f, 1, ZF_JSON_ENDED);
    if (*text == ']') {
        r->json.state = ZF_JSON_ENDED;
        return bad(r, f, 1, false, zf_reader_bad(r, 0, e, "expected a record, found `]`: a comma too many before it"));
    }
    r->json.state = ZF_JSON_ELEMENT;
    r->scan = 0;
    return element(r, f, e);
}
