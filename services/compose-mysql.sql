-- The user of compose.yaml's MySQL and MariaDB servers; they may create a database for each test.
CREATE USER IF NOT EXISTS pillarbox@'%' IDENTIFIED BY 'pillarbox';
GRANT ALL ON *.* TO pillarbox@'%' WITH GRANT OPTION;
CREATE DATABASE IF NOT EXISTS pillarbox;
