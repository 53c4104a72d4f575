# Makes a program of the Go snippets in the pages of docs/coordination: a function for each page that has one, which takes what the
# snippet names and returns its error. Go refuses variables that nobody uses, so each is used.
BEGIN {
    print "package main\n\nimport (\n\t\"context\"\n\t\"strconv\"\n\n\t\"github.com/redis/go-redis/v9\"\n)\n"
    print "var _ = strconv.Itoa\n"
    print "type page struct {\n\tname string\n\trun  func(ctx context.Context, rdb *redis.Client, job, owner, order string, token int64) error\n}\n"
    print "var pages = []page{"
}
/^```go$/ {
    name = FILENAME
    sub(/.*\//, "", name)
    print "\t{\"" name "\", func(ctx context.Context, rdb *redis.Client, job, owner, order string, token int64) error {"
    inside = 1
    used = ""
    next
}
inside && /^```$/ {
    print used "\t\treturn err\n\t}},"
    inside = 0
}
inside {
    print "\t\t" $0
    if (match($0, /^[a-z, ]+ :=/)) {
        count = split(substr($0, 1, RLENGTH - 3), names, /, */)
        for (i = 1; i <= count; i++) used = used "\t\t_ = " names[i] "\n"
    }
}
END { print "}" }
