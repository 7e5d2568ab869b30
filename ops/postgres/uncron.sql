-- Takes the jobs of cron.sql back. One that is not there is left out.

select cron.unschedule(jobname)
from cron.job
where jobname in ('secateur-ranges', 'secateur-retention', 'secateur-growth');
