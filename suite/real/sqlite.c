/*
 * SQLite at work: each thread has a database in memory, and prints nothing; the main thread adds up what they found.
 *
 *     sqlite THREADS ROWS
 */
#include "../workload.h"
#include "sqlite3.h"

struct job {
    uint64_t rows, sum;
};

static void execute(sqlite3 *database, const char *command) {
    char *message = NULL;
    if (sqlite3_exec(database, command, NULL, NULL, &message) != SQLITE_OK) {
        fprintf(stderr, "error: %s: %s\n", command, message);
        exit(1);
    }
}

static sqlite3_stmt *prepared(sqlite3 *database, const char *command) {
    sqlite3_stmt *statement = NULL;
    if (sqlite3_prepare_v2(database, command, -1, &statement, NULL) != SQLITE_OK) {
        fprintf(stderr, "error: %s: %s\n", command, sqlite3_errmsg(database));
        exit(1);
    }
    return statement;
}

/* Runs a query, and adds up the numbers in its first column and the lengths of the texts in its second. */
static uint64_t asked(sqlite3 *database, const char *query) {
    sqlite3_stmt *statement = prepared(database, query);
    uint64_t sum = 0;
    while (sqlite3_step(statement) == SQLITE_ROW) {
        sum = mix(sum + (uint64_t)sqlite3_column_int64(statement, 0)) + (uint64_t)sqlite3_column_bytes(statement, 1);
    }
    sqlite3_finalize(statement);
    return sum;
}

static void *work(void *argument) {
    struct job *job = argument;
    sqlite3 *database = NULL;
    if (sqlite3_open(":memory:", &database) != SQLITE_OK) fail("sqlite3_open");
    execute(database, "CREATE TABLE person (id INTEGER PRIMARY KEY, name TEXT, town INTEGER, note TEXT)");
    execute(database, "CREATE TABLE town (id INTEGER PRIMARY KEY, name TEXT)");
    execute(database, "BEGIN");
    sqlite3_stmt *insert = prepared(database, "INSERT INTO person VALUES (?, ?, ?, ?)");
    struct numbers numbers = {1};
    for (uint64_t row = 0; row < job->rows; row++) {
        char name[64], note[400];
        snprintf(name, sizeof name, "name %" PRIu64, draw(&numbers) % (job->rows / 2 + 1));
        size_t length = draw_between(&numbers, 10, sizeof note - 1);
        memset(note, 'a' + (int)(row % 26), length);
        sqlite3_bind_int64(insert, 1, (sqlite3_int64)row);
        sqlite3_bind_text(insert, 2, name, -1, SQLITE_TRANSIENT);
        sqlite3_bind_int64(insert, 3, (sqlite3_int64)(draw(&numbers) % 500));
        sqlite3_bind_text(insert, 4, note, (int)length, SQLITE_TRANSIENT);
        if (sqlite3_step(insert) != SQLITE_DONE) fail("insert");
        sqlite3_reset(insert);
    }
    sqlite3_finalize(insert);
    execute(database, "WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < 499)"
                      " INSERT INTO town SELECT i, 'town ' || i FROM n");
    execute(database, "COMMIT");
    execute(database, "CREATE INDEX by_name ON person (name)");
    job->sum += asked(database, "SELECT count(*), group_concat(name) FROM person GROUP BY town ORDER BY town");
    job->sum += asked(database, "SELECT person.id, upper(town.name || person.name) FROM person JOIN town"
                                " ON town.id = person.town ORDER BY person.note, person.id");
    execute(database, "UPDATE person SET note = replace(note, 'a', 'bc') WHERE id % 3 = 0");
    execute(database, "DELETE FROM person WHERE id % 5 = 0");
    /* The daily work of programs: a statement for each question. */
    for (uint64_t question = 0; question < job->rows; question++) {
        char query[128];
        snprintf(query, sizeof query, "SELECT id, note FROM person WHERE name = 'name %" PRIu64 "' ORDER BY id", question);
        job->sum = mix(job->sum + asked(database, query));
    }
    if (sqlite3_close(database) != SQLITE_OK) fail("sqlite3_close");
    return NULL;
}

int main(int argc, char **argv) {
    size_t threads = (size_t)argument(argc, argv, 1, 1, 1, MAX_THREADS);
    uint64_t rows = argument(argc, argv, 2, 20000, 1, 10000000), sum = 0;
    static struct job jobs[MAX_THREADS];
    for (size_t i = 0; i < threads; i++) jobs[i].rows = rows / threads + 1;
    in_threads(threads, work, jobs, sizeof *jobs);
    for (size_t i = 0; i < threads; i++) sum = mix(sum + jobs[i].sum);
    printf("sqlite %zu %" PRIu64 " sum %" PRIu64 "\n", threads, rows, sum);
    return 0;
}
