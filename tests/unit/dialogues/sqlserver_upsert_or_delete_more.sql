-- write: upsert or delete more

-- getting ready
SET XACT_ABORT ON; SET IMPLICIT_TRANSACTIONS OFF; SET NOCOUNT OFF; SET ROWCOUNT 0; SET DEADLOCK_PRIORITY NORMAL; SET ANSI_NULLS ON; SET ANSI_PADDING ON; SET ANSI_WARNINGS ON; SET ARITHABORT ON; SET CONCAT_NULL_YIELDS_NULL ON; SET NUMERIC_ROUNDABORT OFF; SET QUOTED_IDENTIFIER ON; SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
SET LOCK_TIMEOUT n
SELECT CAST(DATABASEPROPERTYEX(DB_NAME(), 'Updateability') AS nvarchar(60)), delayed_durability_desc, snapshot_isolation_state FROM sys.databases WHERE name = DB_NAME()
SELECT o.type_desc, COALESCE(t.is_memory_optimized, 0), COALESCE(t.is_external, 0), COALESCE(t.temporal_type_desc, '') FROM sys.objects o JOIN sys.schemas s ON s.schema_id = o.schema_id LEFT JOIN sys.tables t ON t.object_id = o.object_id WHERE s.name = :schema AND o.name = :table
SELECT 1 FROM sys.schemas WHERE name = :schema
SELECT o.type_desc, COALESCE(t.is_memory_optimized, 0), COALESCE(t.is_external, 0), COALESCE(t.temporal_type_desc, '') FROM sys.objects o JOIN sys.schemas s ON s.schema_id = o.schema_id LEFT JOIN sys.tables t ON t.object_id = o.object_id WHERE s.name = :schema AND o.name = :table
CREATE TABLE I.I ( I …, PRIMARY KEY (I, …) )
SELECT o.type_desc, COALESCE(t.is_memory_optimized, 0), COALESCE(t.is_external, 0), COALESCE(t.temporal_type_desc, '') FROM sys.objects o JOIN sys.schemas s ON s.schema_id = o.schema_id LEFT JOIN sys.tables t ON t.object_id = o.object_id WHERE s.name = :schema AND o.name = :table
CREATE TABLE I.I ( I …, PRIMARY KEY (I, …) )
BEGIN TRANSACTION
SELECT I, … FROM I.I WITH (UPDLOCK, HOLDLOCK, ROWLOCK) WHERE I = :pipeline AND I = :sink
SELECT o.type_desc, COALESCE(t.is_memory_optimized, 0), COALESCE(t.is_external, 0), COALESCE(t.temporal_type_desc, '') FROM sys.objects o JOIN sys.schemas s ON s.schema_id = o.schema_id LEFT JOIN sys.tables t ON t.object_id = o.object_id WHERE s.name = :schema AND o.name = :table
CREATE TABLE I.I (I …, PRIMARY KEY NONCLUSTERED (I))
SELECT o.type_desc, COALESCE(t.is_memory_optimized, 0), COALESCE(t.is_external, 0), COALESCE(t.temporal_type_desc, '') FROM sys.objects o JOIN sys.schemas s ON s.schema_id = o.schema_id LEFT JOIN sys.tables t ON t.object_id = o.object_id WHERE s.name = :schema AND o.name = :table
SELECT i.index_id, c.name FROM sys.indexes i JOIN sys.objects o ON o.object_id = i.object_id JOIN sys.schemas s ON s.schema_id = o.schema_id JOIN sys.index_columns k ON k.object_id = i.object_id AND k.index_id = i.index_id AND k.is_included_column = 0 JOIN sys.columns c ON c.object_id = k.object_id AND c.column_id = k.column_id WHERE s.name = :schema AND o.name = :table AND i.is_unique = 1 AND i.has_filter = 0 AND i.is_disabled = 0 AND i.ignore_dup_key = 0 ORDER BY i.index_id
SELECT p.name FROM sys.security_policies p JOIN sys.security_predicates q ON q.object_id = p.object_id JOIN sys.objects o ON o.object_id = q.target_object_id JOIN sys.schemas s ON s.schema_id = o.schema_id WHERE s.name = :schema AND o.name = :table AND p.is_enabled = 1 ORDER BY p.name
SELECT c.name, b.name, c.max_length, c.precision, c.scale, c.collation_name, c.is_nullable, c.is_identity, c.is_computed, c.generated_always_type, c.default_object_id FROM sys.columns c JOIN sys.objects o ON o.object_id = c.object_id JOIN sys.schemas s ON s.schema_id = o.schema_id JOIN sys.types b ON b.user_type_id = c.system_type_id WHERE s.name = :schema AND o.name = :table ORDER BY c.column_id
SELECT HAS_PERMS_BY_NAME(:table, 'OBJECT', :privilege)
SELECT HAS_PERMS_BY_NAME(:table, 'OBJECT', :privilege)
SELECT HAS_PERMS_BY_NAME(:table, 'OBJECT', :privilege)
SELECT HAS_PERMS_BY_NAME(:table, 'OBJECT', :privilege)
SELECT I, … FROM I.I WITH (UPDLOCK, HOLDLOCK, ROWLOCK) WHERE I = :pipeline AND I = :sink
SELECT I, … FROM I.I ORDER BY I, …
SELECT MAX(I) FROM I.I WHERE I = :pipeline AND I = :sink
SELECT I, … FROM I.I
UPDATE I.I SET I = :table_name, I = :write, I = :format_version, I = :position, I = :generation, I = :query_id, I = :batch_id, I = :offsets, I = :schema, I = :rows_decided, I = :digest_decided, I = :rows_before, I = :digest_before, I = :rows_after, I = :digest_after, I = SYSUTCDATETIME(), I = :ledger_id WHERE I = :pipeline AND I = :sink
INSERT INTO I.I ( I, … ) SELECT :pipeline, :sink, :table_name, :write, :format_version, :position, :generation, :query_id, :batch_id, :offsets, :schema, :rows_decided, :digest_decided, :rows_before, :digest_before, :rows_after, :digest_after, SYSUTCDATETIME(), :ledger_id WHERE NOT EXISTS (SELECT 1 FROM I.I WITH (UPDLOCK, HOLDLOCK) WHERE I = :pipeline AND I = :sink)
SELECT XACT_STATE()
COMMIT TRANSACTION WITH (DELAYED_DURABILITY = OFF)

-- checking
SET XACT_ABORT ON; SET IMPLICIT_TRANSACTIONS OFF; SET NOCOUNT OFF; SET ROWCOUNT 0; SET DEADLOCK_PRIORITY NORMAL; SET ANSI_NULLS ON; SET ANSI_PADDING ON; SET ANSI_WARNINGS ON; SET ARITHABORT ON; SET CONCAT_NULL_YIELDS_NULL ON; SET NUMERIC_ROUNDABORT OFF; SET QUOTED_IDENTIFIER ON; SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
SET LOCK_TIMEOUT n
SELECT CAST(DATABASEPROPERTYEX(DB_NAME(), 'Updateability') AS nvarchar(60)), delayed_durability_desc, snapshot_isolation_state FROM sys.databases WHERE name = DB_NAME()
SET TRANSACTION ISOLATION LEVEL SNAPSHOT
BEGIN TRANSACTION
SELECT o.type_desc, COALESCE(t.is_memory_optimized, 0), COALESCE(t.is_external, 0), COALESCE(t.temporal_type_desc, '') FROM sys.objects o JOIN sys.schemas s ON s.schema_id = o.schema_id LEFT JOIN sys.tables t ON t.object_id = o.object_id WHERE s.name = :schema AND o.name = :table
SELECT i.index_id, c.name FROM sys.indexes i JOIN sys.objects o ON o.object_id = i.object_id JOIN sys.schemas s ON s.schema_id = o.schema_id JOIN sys.index_columns k ON k.object_id = i.object_id AND k.index_id = i.index_id AND k.is_included_column = 0 JOIN sys.columns c ON c.object_id = k.object_id AND c.column_id = k.column_id WHERE s.name = :schema AND o.name = :table AND i.is_unique = 1 AND i.has_filter = 0 AND i.is_disabled = 0 AND i.ignore_dup_key = 0 ORDER BY i.index_id
SELECT p.name FROM sys.security_policies p JOIN sys.security_predicates q ON q.object_id = p.object_id JOIN sys.objects o ON o.object_id = q.target_object_id JOIN sys.schemas s ON s.schema_id = o.schema_id WHERE s.name = :schema AND o.name = :table AND p.is_enabled = 1 ORDER BY p.name
SELECT c.name, b.name, c.max_length, c.precision, c.scale, c.collation_name, c.is_nullable, c.is_identity, c.is_computed, c.generated_always_type, c.default_object_id FROM sys.columns c JOIN sys.objects o ON o.object_id = c.object_id JOIN sys.schemas s ON s.schema_id = o.schema_id JOIN sys.types b ON b.user_type_id = c.system_type_id WHERE s.name = :schema AND o.name = :table ORDER BY c.column_id
SELECT o.type_desc, COALESCE(t.is_memory_optimized, 0), COALESCE(t.is_external, 0), COALESCE(t.temporal_type_desc, '') FROM sys.objects o JOIN sys.schemas s ON s.schema_id = o.schema_id LEFT JOIN sys.tables t ON t.object_id = o.object_id WHERE s.name = :schema AND o.name = :table
SELECT i.index_id, c.name FROM sys.indexes i JOIN sys.objects o ON o.object_id = i.object_id JOIN sys.schemas s ON s.schema_id = o.schema_id JOIN sys.index_columns k ON k.object_id = i.object_id AND k.index_id = i.index_id AND k.is_included_column = 0 JOIN sys.columns c ON c.object_id = k.object_id AND c.column_id = k.column_id WHERE s.name = :schema AND o.name = :table AND i.is_unique = 1 AND i.has_filter = 0 AND i.is_disabled = 0 AND i.ignore_dup_key = 0 ORDER BY i.index_id
SELECT p.name FROM sys.security_policies p JOIN sys.security_predicates q ON q.object_id = p.object_id JOIN sys.objects o ON o.object_id = q.target_object_id JOIN sys.schemas s ON s.schema_id = o.schema_id WHERE s.name = :schema AND o.name = :table AND p.is_enabled = 1 ORDER BY p.name
SELECT c.name, b.name, c.max_length, c.precision, c.scale, c.collation_name, c.is_nullable, c.is_identity, c.is_computed, c.generated_always_type, c.default_object_id FROM sys.columns c JOIN sys.objects o ON o.object_id = c.object_id JOIN sys.schemas s ON s.schema_id = o.schema_id JOIN sys.types b ON b.user_type_id = c.system_type_id WHERE s.name = :schema AND o.name = :table ORDER BY c.column_id
SELECT 1 FROM sys.schemas WHERE name = :schema
SELECT o.type_desc, COALESCE(t.is_memory_optimized, 0), COALESCE(t.is_external, 0), COALESCE(t.temporal_type_desc, '') FROM sys.objects o JOIN sys.schemas s ON s.schema_id = o.schema_id LEFT JOIN sys.tables t ON t.object_id = o.object_id WHERE s.name = :schema AND o.name = :table
SELECT i.index_id, c.name FROM sys.indexes i JOIN sys.objects o ON o.object_id = i.object_id JOIN sys.schemas s ON s.schema_id = o.schema_id JOIN sys.index_columns k ON k.object_id = i.object_id AND k.index_id = i.index_id AND k.is_included_column = 0 JOIN sys.columns c ON c.object_id = k.object_id AND c.column_id = k.column_id WHERE s.name = :schema AND o.name = :table AND i.is_unique = 1 AND i.has_filter = 0 AND i.is_disabled = 0 AND i.ignore_dup_key = 0 ORDER BY i.index_id
SELECT p.name FROM sys.security_policies p JOIN sys.security_predicates q ON q.object_id = p.object_id JOIN sys.objects o ON o.object_id = q.target_object_id JOIN sys.schemas s ON s.schema_id = o.schema_id WHERE s.name = :schema AND o.name = :table AND p.is_enabled = 1 ORDER BY p.name
SELECT c.name, b.name, c.max_length, c.precision, c.scale, c.collation_name, c.is_nullable, c.is_identity, c.is_computed, c.generated_always_type, c.default_object_id FROM sys.columns c JOIN sys.objects o ON o.object_id = c.object_id JOIN sys.schemas s ON s.schema_id = o.schema_id JOIN sys.types b ON b.user_type_id = c.system_type_id WHERE s.name = :schema AND o.name = :table ORDER BY c.column_id
SELECT I, … FROM I.I WHERE I = :pipeline AND I = :sink
SELECT o.type_desc, COALESCE(t.is_memory_optimized, 0), COALESCE(t.is_external, 0), COALESCE(t.temporal_type_desc, '') FROM sys.objects o JOIN sys.schemas s ON s.schema_id = o.schema_id LEFT JOIN sys.tables t ON t.object_id = o.object_id WHERE s.name = :schema AND o.name = :table
SELECT i.index_id, c.name FROM sys.indexes i JOIN sys.objects o ON o.object_id = i.object_id JOIN sys.schemas s ON s.schema_id = o.schema_id JOIN sys.index_columns k ON k.object_id = i.object_id AND k.index_id = i.index_id AND k.is_included_column = 0 JOIN sys.columns c ON c.object_id = k.object_id AND c.column_id = k.column_id WHERE s.name = :schema AND o.name = :table AND i.is_unique = 1 AND i.has_filter = 0 AND i.is_disabled = 0 AND i.ignore_dup_key = 0 ORDER BY i.index_id
SELECT p.name FROM sys.security_policies p JOIN sys.security_predicates q ON q.object_id = p.object_id JOIN sys.objects o ON o.object_id = q.target_object_id JOIN sys.schemas s ON s.schema_id = o.schema_id WHERE s.name = :schema AND o.name = :table AND p.is_enabled = 1 ORDER BY p.name
SELECT c.name, b.name, c.max_length, c.precision, c.scale, c.collation_name, c.is_nullable, c.is_identity, c.is_computed, c.generated_always_type, c.default_object_id FROM sys.columns c JOIN sys.objects o ON o.object_id = c.object_id JOIN sys.schemas s ON s.schema_id = o.schema_id JOIN sys.types b ON b.user_type_id = c.system_type_id WHERE s.name = :schema AND o.name = :table ORDER BY c.column_id
SELECT HAS_PERMS_BY_NAME(:table, 'OBJECT', :privilege)
SELECT HAS_PERMS_BY_NAME(:table, 'OBJECT', :privilege)
SELECT HAS_PERMS_BY_NAME(:table, 'OBJECT', :privilege)
SELECT HAS_PERMS_BY_NAME(:table, 'OBJECT', :privilege)

-- looking
SET XACT_ABORT ON; SET IMPLICIT_TRANSACTIONS OFF; SET NOCOUNT OFF; SET ROWCOUNT 0; SET DEADLOCK_PRIORITY NORMAL; SET ANSI_NULLS ON; SET ANSI_PADDING ON; SET ANSI_WARNINGS ON; SET ARITHABORT ON; SET CONCAT_NULL_YIELDS_NULL ON; SET NUMERIC_ROUNDABORT OFF; SET QUOTED_IDENTIFIER ON; SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
SET LOCK_TIMEOUT n
SELECT CAST(DATABASEPROPERTYEX(DB_NAME(), 'Updateability') AS nvarchar(60)), delayed_durability_desc, snapshot_isolation_state FROM sys.databases WHERE name = DB_NAME()
SET TRANSACTION ISOLATION LEVEL SNAPSHOT
BEGIN TRANSACTION
SELECT o.type_desc, COALESCE(t.is_memory_optimized, 0), COALESCE(t.is_external, 0), COALESCE(t.temporal_type_desc, '') FROM sys.objects o JOIN sys.schemas s ON s.schema_id = o.schema_id LEFT JOIN sys.tables t ON t.object_id = o.object_id WHERE s.name = :schema AND o.name = :table
SELECT i.index_id, c.name FROM sys.indexes i JOIN sys.objects o ON o.object_id = i.object_id JOIN sys.schemas s ON s.schema_id = o.schema_id JOIN sys.index_columns k ON k.object_id = i.object_id AND k.index_id = i.index_id AND k.is_included_column = 0 JOIN sys.columns c ON c.object_id = k.object_id AND c.column_id = k.column_id WHERE s.name = :schema AND o.name = :table AND i.is_unique = 1 AND i.has_filter = 0 AND i.is_disabled = 0 AND i.ignore_dup_key = 0 ORDER BY i.index_id
SELECT p.name FROM sys.security_policies p JOIN sys.security_predicates q ON q.object_id = p.object_id JOIN sys.objects o ON o.object_id = q.target_object_id JOIN sys.schemas s ON s.schema_id = o.schema_id WHERE s.name = :schema AND o.name = :table AND p.is_enabled = 1 ORDER BY p.name
SELECT c.name, b.name, c.max_length, c.precision, c.scale, c.collation_name, c.is_nullable, c.is_identity, c.is_computed, c.generated_always_type, c.default_object_id FROM sys.columns c JOIN sys.objects o ON o.object_id = c.object_id JOIN sys.schemas s ON s.schema_id = o.schema_id JOIN sys.types b ON b.user_type_id = c.system_type_id WHERE s.name = :schema AND o.name = :table ORDER BY c.column_id

-- publishing
BEGIN TRANSACTION
SELECT I, … FROM I.I WITH (UPDLOCK, HOLDLOCK, ROWLOCK) WHERE I = :pipeline AND I = :sink
SELECT TOP (1) 1 FROM I.I WITH (REPEATABLEREAD)
SELECT o.type_desc, COALESCE(t.is_memory_optimized, 0), COALESCE(t.is_external, 0), COALESCE(t.temporal_type_desc, '') FROM sys.objects o JOIN sys.schemas s ON s.schema_id = o.schema_id LEFT JOIN sys.tables t ON t.object_id = o.object_id WHERE s.name = :schema AND o.name = :table
SELECT i.index_id, c.name FROM sys.indexes i JOIN sys.objects o ON o.object_id = i.object_id JOIN sys.schemas s ON s.schema_id = o.schema_id JOIN sys.index_columns k ON k.object_id = i.object_id AND k.index_id = i.index_id AND k.is_included_column = 0 JOIN sys.columns c ON c.object_id = k.object_id AND c.column_id = k.column_id WHERE s.name = :schema AND o.name = :table AND i.is_unique = 1 AND i.has_filter = 0 AND i.is_disabled = 0 AND i.ignore_dup_key = 0 ORDER BY i.index_id
SELECT p.name FROM sys.security_policies p JOIN sys.security_predicates q ON q.object_id = p.object_id JOIN sys.objects o ON o.object_id = q.target_object_id JOIN sys.schemas s ON s.schema_id = o.schema_id WHERE s.name = :schema AND o.name = :table AND p.is_enabled = 1 ORDER BY p.name
SELECT c.name, b.name, c.max_length, c.precision, c.scale, c.collation_name, c.is_nullable, c.is_identity, c.is_computed, c.generated_always_type, c.default_object_id FROM sys.columns c JOIN sys.objects o ON o.object_id = c.object_id JOIN sys.schemas s ON s.schema_id = o.schema_id JOIN sys.types b ON b.user_type_id = c.system_type_id WHERE s.name = :schema AND o.name = :table ORDER BY c.column_id
DROP TABLE IF EXISTS #penstock_stage
CREATE TABLE #penstock_stage (I …)
INSERT BULK #penstock_stage …
SELECT COUNT(*) FROM #penstock_stage
SELECT s.I, … FROM #penstock_stage AS s WHERE NOT s.I IN (SELECT MAX(I) FROM #penstock_stage GROUP BY I) OR s.I = 1
SELECT t.I, … FROM I.I AS t WITH (UPDLOCK, HOLDLOCK) JOIN #penstock_stage AS s ON t.I = s.I WHERE s.I IN (SELECT MAX(I) FROM #penstock_stage GROUP BY I)
DELETE FROM I.I WHERE EXISTS (SELECT 1 FROM #penstock_stage AS s WHERE I.I.I = s.I AND s.I IN (SELECT MAX(I) FROM #penstock_stage GROUP BY I) AND s.I = 1)
MERGE INTO I.I WITH (HOLDLOCK) AS t USING (SELECT s.I, … FROM #penstock_stage AS s WHERE s.I IN (SELECT MAX(I) FROM #penstock_stage GROUP BY I) AND s.I = 0) AS s ON t.I = s.I WHEN MATCHED THEN UPDATE SET t.I = s.I, … WHEN NOT MATCHED BY TARGET THEN INSERT (I, …) VALUES (s.I, …);
DROP TABLE IF EXISTS #penstock_stage
UPDATE I.I SET I = :table_name, I = :write, I = :format_version, I = :position, I = :generation, I = :query_id, I = :batch_id, I = :offsets, I = :schema, I = :rows_decided, I = :digest_decided, I = :rows_before, I = :digest_before, I = :rows_after, I = :digest_after, I = SYSUTCDATETIME(), I = :ledger_id WHERE I = :pipeline AND I = :sink
INSERT INTO I.I ( I, … ) VALUES ( :pipeline, :sink, :position, :generation, :query_id, :batch_id, :offsets, :rows, :digest, SYSUTCDATETIME() )
DELETE FROM I.I WHERE I = :pipeline AND I = :sink AND I <= :position
SELECT XACT_STATE()
COMMIT TRANSACTION WITH (DELAYED_DURABILITY = OFF)

-- publishing the same again
BEGIN TRANSACTION
SELECT I, … FROM I.I WITH (UPDLOCK, HOLDLOCK, ROWLOCK) WHERE I = :pipeline AND I = :sink
SELECT I, … FROM I.I WHERE I = :pipeline AND I = :sink AND I = :position
SELECT XACT_STATE()
COMMIT TRANSACTION WITH (DELAYED_DURABILITY = OFF)

-- verifying
SET XACT_ABORT ON; SET IMPLICIT_TRANSACTIONS OFF; SET NOCOUNT OFF; SET ROWCOUNT 0; SET DEADLOCK_PRIORITY NORMAL; SET ANSI_NULLS ON; SET ANSI_PADDING ON; SET ANSI_WARNINGS ON; SET ARITHABORT ON; SET CONCAT_NULL_YIELDS_NULL ON; SET NUMERIC_ROUNDABORT OFF; SET QUOTED_IDENTIFIER ON; SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
SET LOCK_TIMEOUT n
SELECT CAST(DATABASEPROPERTYEX(DB_NAME(), 'Updateability') AS nvarchar(60)), delayed_durability_desc, snapshot_isolation_state FROM sys.databases WHERE name = DB_NAME()
SET TRANSACTION ISOLATION LEVEL SNAPSHOT
BEGIN TRANSACTION
SELECT o.type_desc, COALESCE(t.is_memory_optimized, 0), COALESCE(t.is_external, 0), COALESCE(t.temporal_type_desc, '') FROM sys.objects o JOIN sys.schemas s ON s.schema_id = o.schema_id LEFT JOIN sys.tables t ON t.object_id = o.object_id WHERE s.name = :schema AND o.name = :table
SELECT i.index_id, c.name FROM sys.indexes i JOIN sys.objects o ON o.object_id = i.object_id JOIN sys.schemas s ON s.schema_id = o.schema_id JOIN sys.index_columns k ON k.object_id = i.object_id AND k.index_id = i.index_id AND k.is_included_column = 0 JOIN sys.columns c ON c.object_id = k.object_id AND c.column_id = k.column_id WHERE s.name = :schema AND o.name = :table AND i.is_unique = 1 AND i.has_filter = 0 AND i.is_disabled = 0 AND i.ignore_dup_key = 0 ORDER BY i.index_id
SELECT p.name FROM sys.security_policies p JOIN sys.security_predicates q ON q.object_id = p.object_id JOIN sys.objects o ON o.object_id = q.target_object_id JOIN sys.schemas s ON s.schema_id = o.schema_id WHERE s.name = :schema AND o.name = :table AND p.is_enabled = 1 ORDER BY p.name
SELECT c.name, b.name, c.max_length, c.precision, c.scale, c.collation_name, c.is_nullable, c.is_identity, c.is_computed, c.generated_always_type, c.default_object_id FROM sys.columns c JOIN sys.objects o ON o.object_id = c.object_id JOIN sys.schemas s ON s.schema_id = o.schema_id JOIN sys.types b ON b.user_type_id = c.system_type_id WHERE s.name = :schema AND o.name = :table ORDER BY c.column_id
SELECT I, … FROM I.I ORDER BY I, …
SELECT I, … FROM I.I WHERE I = :pipeline AND I = :sink
SELECT o.type_desc, COALESCE(t.is_memory_optimized, 0), COALESCE(t.is_external, 0), COALESCE(t.temporal_type_desc, '') FROM sys.objects o JOIN sys.schemas s ON s.schema_id = o.schema_id LEFT JOIN sys.tables t ON t.object_id = o.object_id WHERE s.name = :schema AND o.name = :table
SELECT i.index_id, c.name FROM sys.indexes i JOIN sys.objects o ON o.object_id = i.object_id JOIN sys.schemas s ON s.schema_id = o.schema_id JOIN sys.index_columns k ON k.object_id = i.object_id AND k.index_id = i.index_id AND k.is_included_column = 0 JOIN sys.columns c ON c.object_id = k.object_id AND c.column_id = k.column_id WHERE s.name = :schema AND o.name = :table AND i.is_unique = 1 AND i.has_filter = 0 AND i.is_disabled = 0 AND i.ignore_dup_key = 0 ORDER BY i.index_id
SELECT p.name FROM sys.security_policies p JOIN sys.security_predicates q ON q.object_id = p.object_id JOIN sys.objects o ON o.object_id = q.target_object_id JOIN sys.schemas s ON s.schema_id = o.schema_id WHERE s.name = :schema AND o.name = :table AND p.is_enabled = 1 ORDER BY p.name
SELECT c.name, b.name, c.max_length, c.precision, c.scale, c.collation_name, c.is_nullable, c.is_identity, c.is_computed, c.generated_always_type, c.default_object_id FROM sys.columns c JOIN sys.objects o ON o.object_id = c.object_id JOIN sys.schemas s ON s.schema_id = o.schema_id JOIN sys.types b ON b.user_type_id = c.system_type_id WHERE s.name = :schema AND o.name = :table ORDER BY c.column_id
SELECT I, … FROM I.I
