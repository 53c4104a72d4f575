# Makes a class of the Java snippets that the index lists: a function for each, which takes the names that the snippet uses, unless it
# defines them itself, and returns the grant that it got. The block that opens the connection keeps it.
BEGIN {
    FS = "\t"
    port = ENVIRON["PORT"]
    print "package programs;\n\nimport java.util.List;"
    print "import io.lettuce.core.api.StatefulRedisConnection;\nimport io.lettuce.core.codec.StringCodec;\nimport io.lettuce.core.output.ObjectOutput;"
    print "import io.lettuce.core.protocol.CommandArgs;\nimport io.lettuce.core.protocol.ProtocolKeyword;\nimport java.time.Duration;"
    print "import redis.clients.jedis.RedisClient;\nimport redis.clients.jedis.commands.ProtocolCommand;\nimport redis.clients.jedis.util.SafeEncoder;\n"
    print "final class Pages {"
    print "    interface Run {\n        Boolean of(RedisClient jedis, io.lettuce.core.RedisClient client, String job, String owner, String order, String token);\n    }\n"
    print "    record Page(String name, String text, Run run) {}\n"
    print "    static RedisClient connection;\n"
    print "    static final List<Page> ALL = List.of("
}
{
    text = ""
    is_granted = makes_connection = 0
    names = " jedis client job owner order token "
    while ((getline line <$1) > 0) {
        gsub(/6379/, port, line)
        text = text "            " line "\n"
        if (line ~ /^boolean granted/) is_granted = 1
        if (line ~ /^RedisClient jedis =/) makes_connection = 1
        if (match(line, /[A-Za-z<>?]+ [a-z]+ = /)) {
            split(substr(line, RSTART, RLENGTH), made, " ")
            sub(" " made[2] " ", " its" made[2] " ", names)
        }
    }
    close($1)
    gsub(/^ | $/, "", names)
    gsub(/ /, ", ", names)
    print "        " separator "new Page(\"" $2 " " $3 "\", \"\"\"\n" text "            \"\"\", (" names ") -> {"
    printf "%s", text
    if (makes_connection) print "            connection = jedis;"
    print "            return " (is_granted ? "granted" : "null") ";\n        })"
    separator = ", "
}
END { print "    );\n}" }
